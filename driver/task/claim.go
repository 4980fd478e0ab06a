// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// claim is a screen of this process: a task has it, or is being started or ended on it.
type claim struct {
	id ID
	// alloc and name are the task's whose run it is. Nomad gives each run of one task
	// another id.
	alloc, name string
	// settled is closed when its start has come to an end, whichever; nil where a task
	// had it from the beginning.
	settled chan struct{}
	// cancel gives the start up; it is set with settled.
	cancel context.CancelFunc
}

// claimOf is that of a run that is not being started.
func claimOf(r runRecord) claim { return claim{id: r.TaskID, alloc: r.AllocID, name: r.TaskName} }

// forgottenGrace is what a desktop gets that was started for an agent which has died.
const forgottenGrace = 5 * time.Second

// endingLimit is how long a start waits for the end of the profile's screen that is on its
// way. What takes longer is refused as one that runs, and Nomad tries again.
const endingLimit = 30 * time.Second

// reserve gives a screen to a task, so that two starts of one profile make one screen.
func (m *Manager) reserve(hash string, c claim) error {
	_, err := m.tryReserve(hash, c)
	return err
}

// reserveStart reserves the screen for a start, and ends an earlier run of the same task
// that this process has. Nomad starts a task only when it knows of no run of it: an agent
// that died in the middle of a start has never learnt of that one, and nobody else would
// ever end it. A screen of another task is waited for where it is on its way out: a node
// that comes back stops the screen that was given up with it, and starts the one in its
// place, at the same time.
func (m *Manager) reserveStart(ctx context.Context, hash string, c claim) error {
	for {
		other, err := m.tryReserve(hash, c)
		if err != nil && m.awaitEnding(ctx, other) {
			continue
		}
		if err == nil || c.alloc == "" || other.alloc != c.alloc || other.name != c.name {
			return err
		}
		m.log.Warn("ending an earlier run of this task, which Nomad has lost", "profile_hash", hash, "task", other.id)
		if err := m.endForgotten(ctx, other); err != nil {
			return &leftoverError{fmt.Errorf("end the earlier run %q: %w", string(other.id), err)}
		}
	}
}

// tryReserve returns the claim that is in the way with its error.
func (m *Manager) tryReserve(hash string, c claim) (other claim, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.tasks[c.id]; ok {
		return claim{}, fmt.Errorf("task with ID %q already started", string(c.id))
	}
	if other, ok := m.busy[hash]; ok {
		return other, &ProfileBusyError{Task: other.id}
	}
	m.busy[hash] = c
	return claim{}, nil
}

// awaitEnding waits for a screen that is about to end, and says whether it has.
func (m *Manager) awaitEnding(ctx context.Context, c claim) bool {
	t, err := m.Get(c.id)
	if err != nil || !t.ending() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, endingLimit)
	defer cancel()
	select {
	case <-t.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// endForgotten ends a run whether it is still being started or runs already.
func (m *Manager) endForgotten(ctx context.Context, c claim) error {
	if c.settled != nil {
		c.cancel()
		select {
		case <-c.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t, err := m.Get(c.id)
	if err != nil {
		return nil // its start was given up
	}
	if err := t.Stop(ctx, forgottenGrace, unix.SIGTERM); err != nil {
		return err
	}
	return t.Destroy(ctx, false)
}

func (m *Manager) release(id ID, hash string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[hash].id == id {
		delete(m.busy, hash)
	}
}
