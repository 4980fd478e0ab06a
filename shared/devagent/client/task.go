// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/taskdir"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// The states of a task.
const (
	taskPending = "pending"
	taskRunning = "running"
	taskDead    = "dead"
)

// keptEvents is how many events of a task are kept, as in Nomad.
const keptEvents = 10

// maxKillTimeout caps a job's kill_timeout (Nomad's client.max_kill_timeout).
const maxKillTimeout = 30 * time.Second

// taskRunner runs one task over as many runs as its restart policy allows.
type taskRunner struct {
	alloc *allocRunner
	name  string
	dir   taskdir.Task
	// kill is closed when the task is to stop for good.
	kill     chan struct{}
	killOnce sync.Once
	// restarts holds a token when the task is to be restarted.
	restarts  chan struct{}
	templates *templates

	// mu guards the fields below.
	mu    sync.Mutex
	state api.TaskState
	// now is the current run, nil between runs.
	now *host.Task
	// killedBy is the event that says why the task is stopped, nil for a plain stop.
	killedBy *api.TaskEvent
}

func newTaskRunner(r *allocRunner, t *api.Task, known *api.TaskState) *taskRunner {
	out := &taskRunner{
		alloc: r, name: t.Name, dir: r.dir.Task(t.Name),
		kill: make(chan struct{}), restarts: make(chan struct{}, 1),
		state: api.TaskState{State: taskPending},
	}
	if known != nil {
		out.state = *known
		out.state.Events = slices.Clone(known.Events)
	}
	out.templates = newTemplates(out)
	return out
}

// spec gives the task as its job says now.
func (t *taskRunner) spec() (*api.Allocation, *api.Task) {
	a := t.alloc.current()
	for _, one := range a.Job.LookupTaskGroup(a.TaskGroup).Tasks {
		if one.Name == t.name {
			return a, one
		}
	}
	return a, &api.Task{Name: t.name}
}

// emit adds an event.
func (t *taskRunner) emit(e *api.TaskEvent) { t.change(e, nil) }

// change adds an event and changes the state with it.
func (t *taskRunner) change(e *api.TaskEvent, f func(s *api.TaskState)) {
	t.mu.Lock()
	if e != nil {
		t.state.Events = append(slices.Clone(t.state.Events), e)
		t.state.Events = t.state.Events[max(0, len(t.state.Events)-keptEvents):]
		t.state.Failed = t.state.Failed || e.FailsTask
	}
	if f != nil {
		f(&t.state)
	}
	t.mu.Unlock()
	t.alloc.changed()
}

// snapshot gives the state as it is now.
func (t *taskRunner) snapshot() *api.TaskState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state
	return &s
}

// running gives the current run, or nil.
func (t *taskRunner) running() *host.Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *taskRunner) setRunning(run *host.Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = run
}

// stop ends the task for good; why may be nil.
func (t *taskRunner) stop(why *api.TaskEvent) {
	t.killOnce.Do(func() {
		t.mu.Lock()
		t.killedBy = why
		t.mu.Unlock()
		close(t.kill)
	})
}

// restart asks for another run.
func (t *taskRunner) restart(reason string) {
	t.emit(eventRestartSignal(reason))
	select {
	case t.restarts <- struct{}{}:
	default:
	}
}

// signal sends a signal to the run.
func (t *taskRunner) signal(ctx context.Context, signal string) error {
	run := t.running()
	if run == nil {
		return fmt.Errorf("Task not running") //nolint:staticcheck // Nomad's own text.
	}
	t.emit(eventSignaling(signal))
	return run.Signal(ctx, signal)
}

// abandon marks a task dead that never ran.
func (t *taskRunner) abandon(why *api.TaskEvent) {
	t.change(why, func(s *api.TaskState) {
		s.State, s.FinishedAt = taskDead, time.Now()
	})
}

// run runs the task until it has ended for good, or ctx lets go of it.
func (t *taskRunner) run(ctx context.Context) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-t.alloc.kill:
			t.stop(nil)
		case <-stop:
		}
	}()
	a, task := t.spec()
	if t.snapshot().State == taskDead {
		t.cleanUp(ctx)
		return
	}
	if len(t.snapshot().Events) == 0 {
		t.emit(newEvent(api.TaskReceived, "Task received by client"))
	}
	policy := newRestarts(task.RestartPolicy, *a.Job.Type, time.Now())
	run := t.restore(ctx)
	for {
		v := t.once(ctx, run, policy)
		run = nil
		switch v.event {
		case letGo:
			return
		case api.TaskRestarting:
		default:
			t.finish(v)
			return
		}
		t.change(eventRestarting(v.delay, v.reason), func(s *api.TaskState) {
			s.State, s.LastRestart = taskPending, time.Now()
			s.Restarts++
		})
		if v := t.pause(ctx, v.delay); v.event != api.TaskRestarting {
			if v.event != letGo {
				t.finish(v)
			}
			return
		}
		_, task = t.spec()
		policy.policy = task.RestartPolicy
	}
}

// pause waits before a restart.
func (t *taskRunner) pause(ctx context.Context, delay time.Duration) verdict {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.restarts:
	case <-t.kill:
		return verdict{event: api.TaskKilled}
	case <-ctx.Done():
		return verdict{event: letGo}
	}
	return verdict{event: api.TaskRestarting}
}

// finish marks the task dead.
func (t *taskRunner) finish(v verdict) {
	var e *api.TaskEvent
	switch v.event {
	case api.TaskNotRestarting:
		e = eventNotRestarting(v.reason)
	case api.TaskKilled:
		t.mu.Lock()
		e = t.killedBy
		t.killedBy = nil
		t.mu.Unlock()
		if e != nil {
			t.emit(e)
		}
		e = eventKilled(nil)
	}
	t.change(e, func(s *api.TaskState) {
		s.State, s.FinishedAt = taskDead, time.Now()
	})
	if t.snapshot().Failed {
		t.alloc.siblingFailed(t.name)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
