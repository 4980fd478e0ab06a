// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// VolumePolicy is what jobs may bind of the node (X4). The zero value allows what is the
// job's own: the task's `local` and `tmp`, and the alloc's shared directory.
type VolumePolicy struct {
	Allow []string // further directories; what lies beneath may be bound
}

// neverBound is refused whatever the operator allows: it is as good as root.
var neverBound = []string{"/proc", "/sys", "/dev", "/run/docker.sock", "/var/run", "/run/containerd", "/etc/shadow", "/var/lib/docker"}

// volumes resolves what the job wants to bind, all faults at once. What is found is
// opened again at the launch, beneath the same directory and without following links
// (X5): here it is only looked for.
func (s *start) volumes(field string, wanted []screen.Volume) ([]isolation.Volume, error) {
	var faults screen.Faults
	var found []isolation.Volume
	for _, w := range wanted {
		v, want := s.volume(w)
		if want != "" {
			faults.Add(field, w.Source, want)
			continue
		}
		found = append(found, v)
	}
	return found, faults.Err()
}

// volume returns what is wanted of w where it cannot be bound.
func (s *start) volume(w screen.Volume) (isolation.Volume, string) {
	base, rest := s.baseOf(w.Source)
	if base == "" {
		return isolation.Volume{}, "lies outside of the task's local and tmp and the alloc's alloc directory. The option `volumes { enabled = true, allow = [\"/the/directory\"] }` of the plugin's config on this node would allow more"
	}
	if forbidden := s.m.neverBound(filepath.Join(base, rest)); forbidden != "" {
		return isolation.Volume{}, "holds or lies in " + forbidden + ", which no screen may see"
	}
	v := isolation.Volume{Base: base, Path: rest, Target: w.Target, ReadOnly: w.ReadOnly}
	if v.Target == s.places.data || v.Target == s.places.x || v.Target == s.places.dial {
		return isolation.Volume{}, "must not hide " + v.Target + ", which the screen needs as it is"
	}
	f, err := v.Open()
	switch {
	case err == nil:
		_ = f.Close()
		return v, ""
	case errors.Is(err, fs.ErrNotExist):
		return isolation.Volume{}, "is not there"
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return isolation.Volume{}, "has a link on its way; name the directory that it leads to"
	}
	return isolation.Volume{}, fmt.Sprintf("cannot be bound: %v", err)
}

// baseOf is the directory that a source must stay beneath, and the rest of its path;
// empty where there is none.
func (s *start) baseOf(source string) (base, rest string) {
	allocDir, taskDir := s.request.AllocDir, filepath.Join(s.request.AllocDir, s.request.TaskName)
	own := []string{}
	if allocDir != "" {
		own = []string{filepath.Join(taskDir, "local"), filepath.Join(taskDir, "tmp"), filepath.Join(allocDir, "alloc")}
	}
	path := filepath.Clean(source)
	if !filepath.IsAbs(path) {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case allocDir == "":
			return "", ""
		case first == "alloc":
			path = filepath.Join(allocDir, path)
		default:
			path = filepath.Join(taskDir, path)
		}
	}
	for _, dir := range append(own, s.m.settings.Volumes.Allow...) {
		if rest, ok := beneath(path, filepath.Clean(dir)); ok {
			return filepath.Clean(dir), rest
		}
	}
	return "", ""
}

// beneath is the rest of path below dir, "." for dir itself.
func beneath(path, dir string) (string, bool) {
	if path == dir {
		return ".", true
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return rest, ok
}

// neverBound names what path is, holds or lies in that no screen may see.
func (m *Manager) neverBound(path string) string {
	for _, forbidden := range append([]string{m.settings.StateDir, m.settings.RunDir}, neverBound...) {
		if _, inside := beneath(path, forbidden); inside {
			return forbidden
		}
		if _, holds := beneath(forbidden, path); holds {
			return forbidden
		}
	}
	return ""
}
