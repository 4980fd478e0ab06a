// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// brake is what a supervisor gets to freeze its desktop with.
type brake struct {
	form  *cgroup.BrakeForm // nil: nothing
	files []*os.File
}

// openBrake opens it where the job wants an unused desktop frozen. A screen that cannot be
// stays awake, and the warning says so: to end its programs instead would lose its windows.
func (m *Manager) openBrake(r *runRecord) (brake, string) {
	if r.Idle.Action != screen.IdleFreeze {
		return brake{}, ""
	}
	group, err := isolation.GroupOf(r.Sandbox)
	if err == nil {
		var opened *cgroup.Brake
		if opened, err = group.Brake(); err == nil {
			form, files := opened.Pass()
			return brake{form, files}, ""
		}
	}
	m.log.Warn("the desktop cannot be frozen", "profile", r.Profile, "error", err)
	return brake{}, fmt.Sprintf("`idle_action = \"freeze\"` cannot be had on this node, so the desktop stays awake: %v.", err)
}

// thawLimit bounds the freezer; a kill goes on without it.
const thawLimit = 2 * time.Second

// thaw lets a sandbox go on that may be frozen: on cgroup v1 not even SIGKILL reaches it.
func thaw(ctx context.Context, sandbox isolation.Sandbox) {
	group, err := isolation.GroupOf(sandbox.Record())
	if err != nil {
		return // nothing lives in it
	}
	ctx, cancel := context.WithTimeout(ctx, thawLimit)
	defer cancel()
	_ = group.Thaw(ctx) // one that will not is told of by the kill
}
