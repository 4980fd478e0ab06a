// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// once makes one run of the task, or takes over one that was found again, and says
// what comes after it.
func (t *taskRunner) once(ctx context.Context, run *host.Task, policy *restarts) verdict {
	if run == nil {
		if isClosed(t.kill) {
			return verdict{event: api.TaskKilled}
		}
		// What asked for a restart before this run has it now.
		select {
		case <-t.restarts:
		default:
		}
		var err error
		if run, err = t.start(ctx); err != nil {
			if isClosed(t.kill) {
				return verdict{event: api.TaskKilled}
			}
			if ctx.Err() != nil {
				return verdict{event: letGo}
			}
			return policy.afterStart(err, time.Now())
		}
	}
	return t.wait(ctx, run, policy)
}

// start makes everything a run needs and starts it. The events say what failed.
func (t *taskRunner) start(ctx context.Context) (*host.Task, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	config, h, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	// A start is not given up half-way: what it made would be nobody's.
	run, err := h.StartTask(context.WithoutCancel(ctx), config)
	if err != nil {
		t.emit(eventDriverFailure(driverError(err)))
		if host.Lost(err) {
			// Nomad gives the task up here. Nobody has refused it, and the next start ends what
			// this one may have left.
			err = nomadplugin.Recoverable(err)
		}
		return nil, err
	}
	_, task := t.spec()
	if err := t.remember(run, task.Driver); err != nil {
		t.alloc.client.Log.Error("task not recorded: it will not be found after a restart of the agent",
			"alloc", t.alloc.id, "task", t.name, "error", err)
	}
	t.setRunning(run)
	t.change(newEvent(api.TaskStarted, "Task started by client"), func(s *api.TaskState) {
		s.State = taskRunning
		if s.StartedAt.IsZero() {
			s.StartedAt = time.Now()
		}
	})
	return run, nil
}

// driverError gives a plugin's error in the words that operators know from Nomad.
func driverError(err error) error {
	var call *host.CallError
	if errors.As(err, &call) {
		return fmt.Errorf("rpc error: code = %s desc = %s", call.GRPCStatus().Code(), call.GRPCStatus().Message())
	}
	return err
}

// remember records a run, so that it is found again.
func (t *taskRunner) remember(run *host.Task, driver string) error {
	r, err := run.Record()
	if err != nil {
		return err
	}
	return t.alloc.records.update(t.name, func(one *record) { one.Running, one.Driver = &r, driver })
}

func (t *taskRunner) forgetRun() {
	t.setRunning(nil)
	if err := t.alloc.records.update(t.name, func(one *record) { one.Running = nil }); err != nil {
		t.alloc.client.Log.Error("ended task not recorded", "alloc", t.alloc.id, "task", t.name, "error", err)
	}
}

// wait follows a run to its end, and ends it when that is asked for.
func (t *taskRunner) wait(ctx context.Context, run *host.Task, policy *restarts) verdict {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run.Run(runCtx) }()
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	go t.templates.watch(watch)

	select {
	case <-run.Done():
	case <-t.restarts:
		return t.again(ctx, run)
	case <-t.kill:
		return t.end(ctx, run)
	case <-ctx.Done():
		// The agent ends; the task does not.
		cancel()
		<-ended
		return verdict{event: letGo}
	}
	exit, _ := run.Exit()
	t.forgetRun()
	t.emit(eventTerminated(exit))
	return policy.afterExit(exit, time.Now())
}

// again stops a run for a restart that somebody asked for: the policy is not asked.
func (t *taskRunner) again(ctx context.Context, run *host.Task) verdict {
	if err := t.killRun(ctx, run); err != nil {
		return verdict{event: api.TaskKilled}
	}
	select {
	case <-t.kill:
		return verdict{event: api.TaskKilled}
	default:
		return verdict{event: api.TaskRestarting}
	}
}

// end stops a run for good.
func (t *taskRunner) end(ctx context.Context, run *host.Task) verdict {
	t.mu.Lock()
	why := t.killedBy
	t.killedBy = nil
	t.mu.Unlock()
	if why != nil {
		t.emit(why)
	}
	_, task := t.spec()
	t.emit(eventKilling(min(*task.KillTimeout, maxKillTimeout)))
	if err := t.killRun(ctx, run); err != nil {
		t.emit(eventKilled(err))
	}
	return verdict{event: api.TaskKilled}
}

func (t *taskRunner) killRun(ctx context.Context, run *host.Task) error {
	_, task := t.spec()
	err := run.Kill(context.WithoutCancel(ctx), *task.KillTimeout, task.KillSignal)
	if err != nil {
		t.alloc.client.Log.Error("task not stopped", "alloc", t.alloc.id, "task", t.name, "error", err)
		return err
	}
	exit, _ := run.Exit()
	t.forgetRun()
	t.emit(eventTerminated(exit))
	return nil
}

// restore finds the run of an earlier agent again; nil when there is none to find.
func (t *taskRunner) restore(ctx context.Context) *host.Task {
	one := t.alloc.records.get(t.name)
	if one.Running == nil {
		return nil
	}
	run, err := t.recover(ctx, one)
	if err != nil {
		t.alloc.client.Log.Error("task not found again", "alloc", t.alloc.id, "task", t.name, "error", err)
		t.change(newEvent(taskRestoreFailed, "failed to restore task; will not run until server is contacted"),
			func(s *api.TaskState) { s.State = taskPending })
		t.forgetRun()
		return nil
	}
	t.ensureLogs(ctx)
	t.setRunning(run)
	t.change(nil, func(s *api.TaskState) {
		if s.State = taskRunning; s.StartedAt.IsZero() {
			s.StartedAt = time.Now()
		}
	})
	return run
}

func (t *taskRunner) recover(ctx context.Context, one record) (*host.Task, error) {
	h, err := t.alloc.client.Drivers.Host(one.Driver)
	if err != nil {
		return nil, err
	}
	return h.RecoverTask(ctx, *one.Running)
}

// cleanUp destroys what is left of a task that had ended when the agent did.
func (t *taskRunner) cleanUp(ctx context.Context) {
	one := t.alloc.records.get(t.name)
	if one.Running == nil {
		return
	}
	if run, err := t.recover(ctx, one); err == nil {
		runCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _ = run.Run(runCtx) }()
		if err := run.Kill(ctx, 0, ""); err != nil {
			t.alloc.client.Log.Error("ended task not destroyed", "alloc", t.alloc.id, "task", t.name, "error", err)
		}
	}
	t.forgetRun()
}
