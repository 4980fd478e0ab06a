// SPDX-License-Identifier: MPL-2.0

// Package apptainer runs a session in a container that apptainer makes without any
// privilege: as the screen's own uid, in a user and a pid namespace of its own. There is
// no daemon and no instance: that a screen lives and how it ends is the kernel's word.
package apptainer

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// Options are the operator's choices.
type Options struct {
	// Path is the apptainer program; empty looks for it in the system's own folders.
	Path string
	// ImageDirs are where images may lie as files and sandbox directories (X7). They are
	// the operator's: whoever writes there decides what screens run.
	ImageDirs []string
	// StateDir holds what was fetched from registries, in a folder of this package's.
	StateDir string
	// Cgroups makes a group for each screen; nil where none can be made.
	Cgroups *cgroup.Tree
}

// Boundary is the apptainer isolation. Its methods are safe for concurrent use.
type Boundary struct {
	options Options
	// insecure lets tests fetch from a registry without TLS.
	insecure bool

	mu      sync.Mutex           // guards all below
	version engineVersion        // of the program it was asked from
	digests map[digestKey]string // of image files, as long as nobody changes them
	pulls   map[string]*sync.Mutex
}

var (
	_ isolation.Boundary = (*Boundary)(nil)
	_ isolation.Checker  = (*Boundary)(nil)
	_ isolation.Imager   = (*Boundary)(nil)
)

// New makes the boundary; it touches nothing.
func New(options Options) *Boundary {
	return &Boundary{options: options, digests: map[digestKey]string{}, pulls: map[string]*sync.Mutex{}}
}

// Kind is screen.Apptainer.
func (b *Boundary) Kind() screen.Isolation { return screen.Apptainer }

// Intent names the cgroup: whatever a half launch started is in it.
func (b *Boundary) Intent(order isolation.Order) isolation.Record {
	r := isolation.Record{Isolation: screen.Apptainer, Instance: order.Instance, Scratch: order.Scratch}
	if b.options.Cgroups != nil {
		r.Cgroup = isolation.GroupName(order)
	}
	return r
}

// Refusal looks at apptainer now.
func (b *Boundary) Refusal(ctx context.Context) string { return b.Check(ctx).Reason }

// imagesDir is where fetched images are kept.
func (b *Boundary) imagesDir() string { return filepath.Join(b.options.StateDir, "images") }

// RefusedError says why apptainer cannot run a screen and what would change that.
type RefusedError = isolation.RefusedError
