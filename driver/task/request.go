// SPDX-License-Identifier: MPL-2.0

package task

import (
	"net/netip"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/shared/screen"
)

// Request is one task as Nomad asks for it, decoded and validated.
type Request struct {
	TaskID    ID
	AllocID   string
	TaskName  string
	JobID     string
	Namespace string
	User      string // the job's, or a dynamic workload user; empty: the profile's own uid
	Spec      screen.Spec
	Env       map[string]string // holds secrets
	AllocDir  string
	// SecretDirs are the task's directories that the desktop must not see.
	SecretDirs       []string
	StdoutPath       string
	StderrPath       string
	Limits           cgroup.Limits
	JoinCgroups      []string
	NetworkNamespace string
	// ViewerAddress is where Nomad put the port of the viewer listener; invalid: the job
	// wants none.
	ViewerAddress netip.AddrPort
}

func (r Request) screenID() screen.ID {
	return screen.ID{Namespace: r.Namespace, Profile: r.Spec.Profile}
}
