// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

// State is what Nomad keeps for the driver, opaque to it: enough to recognise the run.
// The newest facts are in the run's record, which lies with root alone.
func (t *Task) State() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return json.Marshal(t.record)
}

// Recover takes over the run that state describes, by the run's record and its
// instance, never by a pid alone. A run that has ended is recovered as ended, with the
// result it had. On an error nothing of the run is left.
func (m *Manager) Recover(ctx context.Context, id ID, state []byte) error {
	if _, err := m.Get(id); err == nil {
		return nil
	}
	var r runRecord
	if err := decodeRecord(state, &r); err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	if r.TaskID != id {
		return fmt.Errorf("recover task: its state is of task %q", r.TaskID)
	}
	if err := m.prepare(); err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	var current runRecord
	err := m.runs.load(r.id().Hash(), &current)
	lost := errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnreadable)
	switch {
	case lost && r.Sandbox.Session.Alive():
		// The record was lost, and Nomad's own copy of it names a session that lives.
		m.log.Warn("the run's record was lost; going on with what Nomad kept", "profile", r.Profile)
		if err := m.runs.save(r.id().Hash(), r); err != nil {
			return fmt.Errorf("recover task: %w", err)
		}
		return m.adopt(ctx, r)
	case lost: // what is left of a damaged one the next start clears
		m.finished(r, m.resultOf(r))
		return nil
	case err != nil:
		return fmt.Errorf("recover task: %w", err)
	case current.Instance != r.Instance:
		m.finished(r, m.resultOf(r))
		return m.endRemnant(ctx, r)
	}
	return m.adopt(ctx, current)
}

// endRemnant ends what is left of a run whose screen another run has taken over. The
// run directory is that one's.
func (m *Manager) endRemnant(ctx context.Context, r runRecord) error {
	boundary, ok := m.boundaries[r.Isolation]
	if !ok || !r.Sandbox.Session.Alive() {
		return nil
	}
	sandbox, err := boundary.Adopt(ctx, r.Sandbox)
	if err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	thaw(ctx, sandbox)
	if err := sandbox.Kill(ctx); err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	return nil
}

// resultOf is how a run ended that has no record any more.
func (m *Manager) resultOf(r runRecord) Exit {
	var ended endRecord
	if err := m.results.load(r.Instance, &ended); err == nil {
		return ended.Exit
	}
	return Exit{Code: -1, Err: "the screen was lost while no driver was watching it", At: time.Now().UTC()}
}

// adopt takes over a run whose record there is.
func (m *Manager) adopt(ctx context.Context, r runRecord) error {
	boundary, ok := m.boundaries[r.Isolation]
	if !ok {
		return fmt.Errorf("recover task: this driver has no %s isolation", r.Isolation)
	}
	if err := m.reserve(r.id().Hash(), claimOf(r)); err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	sandbox, err := boundary.Adopt(ctx, r.Sandbox)
	if err != nil {
		m.release(r.TaskID, r.id().Hash())
		return fmt.Errorf("recover task: %w", err)
	}
	m.followLogs(ctx, r, sandbox)
	sup, err := adoptSupervisor(r.Supervisor)
	if errors.Is(err, process.ErrGone) {
		// Also for a session that has ended: its supervisor's successor knows how.
		sup, err = m.launchSupervisor(&r, m.settings.places(r.id()), nil)
		if err == nil {
			r.Supervisor = sup.identity
			err = m.runs.save(r.id().Hash(), r)
		}
	}
	if err != nil {
		m.log.Error("the screen goes on without a supervisor for now", "profile", r.Profile, "error", err)
	}
	m.follow(r, sandbox, sup, uint64(time.Now().UnixMicro()))
	return nil
}

// followLogs goes on with the output of a sandbox that comes by way of an engine. A
// session on the host holds the task's logs itself.
func (m *Manager) followLogs(ctx context.Context, r runRecord, sandbox isolation.Sandbox) {
	follower, ok := sandbox.(isolation.LogFollower)
	if !ok {
		return
	}
	stdout, err := openLog(ctx, r.StdoutPath)
	if err != nil {
		m.log.Warn("the screen's output is not logged any more", "profile", r.Profile, "error", err)
		return
	}
	defer stdout.Close()
	stderr, err := openLog(ctx, r.StderrPath)
	if err != nil {
		m.log.Warn("the screen's output is not logged any more", "profile", r.Profile, "error", err)
		return
	}
	defer stderr.Close()
	if err := follower.FollowLogs(stdout, stderr, time.Now()); err != nil {
		m.log.Warn("the screen's output is not logged any more", "profile", r.Profile, "error", err)
	}
}

// clearLeftovers ends what an earlier run of this screen left: after a driver that died
// in the middle of a start, or an agent that lost a task. A run that another task owns
// and that lives is not touched: the profile is in use.
func (s *start) clearLeftovers(ctx context.Context) error {
	names, err := s.m.runs.names()
	if err != nil {
		return &leftoverError{err}
	}
	hash := s.request.screenID().Hash()
	for _, name := range names {
		var old runRecord
		if err := s.m.runs.load(name, &old); errors.Is(err, fs.ErrNotExist) || err != nil && name != hash {
			continue // gone meanwhile, or another screen's trouble
		} else if errors.Is(err, errUnreadable) {
			if err := s.m.clearUnreadable(ctx, s.places, hash); err != nil {
				return &leftoverError{err}
			}
			continue
		} else if err != nil {
			return &leftoverError{err}
		}
		// An earlier run of this very task may have had another profile.
		ours := old.AllocID == s.request.AllocID && old.TaskName == s.request.TaskName
		if name != hash && (!ours || s.m.manages(old.TaskID)) {
			continue
		}
		if !ours && old.Ready && old.Sandbox.Session.Alive() {
			return &ProfileBusyError{Task: old.TaskID, Alloc: old.AllocID}
		}
		s.m.log.Warn("removing what an earlier run left", "profile", old.Profile, "task", old.TaskID)
		if err := s.m.removeRun(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

// sweepScreen removes what no record tells of any more: an engine that went away in the
// middle of a start or of an end leaves a container.
func (s *start) sweepScreen(ctx context.Context) error {
	sweeper, ok := s.boundary.(isolation.ScreenSweeper)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	if err := sweeper.SweepScreen(ctx, s.request.screenID()); err != nil {
		return &leftoverError{err}
	}
	return nil
}

// manages reports whether a task of this process is running.
func (m *Manager) manages(id ID) bool {
	t, err := m.Get(id)
	return err == nil && !t.over()
}

// removeRun ends and removes a run that nobody manages.
func (m *Manager) removeRun(ctx context.Context, r runRecord) error {
	if boundary, ok := m.boundaries[r.Isolation]; ok {
		sandbox, err := boundary.Adopt(ctx, r.Sandbox)
		if err != nil {
			return &leftoverError{err}
		}
		if err := endSandbox(sandbox); err != nil {
			return &leftoverError{err}
		}
	}
	if sup, err := adoptSupervisor(r.Supervisor); err == nil {
		sup.end()
	}
	if err := errors.Join(m.tidyDisplay(r.Display), m.settings.places(r.id()).removeRun(), r.removeAgentDoor()); err != nil {
		return &leftoverError{err}
	}
	return m.runs.remove(r.id().Hash())
}
