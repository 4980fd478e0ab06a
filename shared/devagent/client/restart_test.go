// SPDX-License-Identifier: MPL-2.0

package client

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

func policy(attempts int, mode string) *api.RestartPolicy {
	interval, delay := 10*time.Minute, 4*time.Second
	return &api.RestartPolicy{Attempts: &attempts, Interval: &interval, Delay: &delay, Mode: &mode}
}

var (
	good = host.Exit{Result: &nomadplugin.ExitResult{}}
	bad  = host.Exit{Result: &nomadplugin.ExitResult{ExitCode: 1}}
	odd  = host.Exit{Result: &nomadplugin.ExitResult{}, Err: errors.New("supervisor lost")}
	at   = time.Unix(1000, 0)
)

func TestRestartsWithinAndBeyondThePolicy(t *testing.T) {
	r := newRestarts(policy(2, "fail"), api.JobTypeService, at)
	for range 2 {
		v := r.afterExit(bad, at)
		if v.event != api.TaskRestarting || v.reason != reasonWithinPolicy || v.delay < 4*time.Second || v.delay > 5*time.Second {
			t.Errorf("got %+v", v)
		}
	}
	if v := r.afterExit(bad, at); v.event != api.TaskNotRestarting || v.reason != `Exceeded allowed attempts 2 in interval 10m0s and mode is "fail"` {
		t.Errorf("got %+v", v)
	}
	// A new interval begins to count anew.
	if v := r.afterExit(bad, at.Add(11*time.Minute)); v.event != api.TaskRestarting {
		t.Errorf("got %+v", v)
	}
}

func TestDelayModeWaitsForTheNextInterval(t *testing.T) {
	r := newRestarts(policy(1, "delay"), api.JobTypeService, at)
	r.afterExit(bad, at)
	v := r.afterExit(bad, at.Add(time.Minute))
	if v.event != api.TaskRestarting || v.reason != reasonDelay || v.delay != 9*time.Minute {
		t.Errorf("got %+v", v)
	}
}

func TestSuccessEndsBatchAndRestartsService(t *testing.T) {
	if v := newRestarts(policy(1, "fail"), api.JobTypeBatch, at).afterExit(good, at); v.event != api.TaskTerminated {
		t.Errorf("batch: %+v", v)
	}
	if v := newRestarts(policy(0, "fail"), api.JobTypeBatch, at).afterExit(good, at); v.event != api.TaskTerminated {
		t.Errorf("batch without attempts: %+v", v)
	}
	if v := newRestarts(policy(1, "fail"), api.JobTypeBatch, at).afterExit(odd, at); v.event != api.TaskRestarting {
		t.Errorf("trouble of the driver's is no success: %+v", v)
	}
	if v := newRestarts(policy(1, "fail"), api.JobTypeService, at).afterExit(good, at); v.event != api.TaskRestarting {
		t.Errorf("service: %+v", v)
	}
	if v := newRestarts(policy(0, "fail"), api.JobTypeService, at).afterExit(good, at); v.event != api.TaskNotRestarting || v.reason != reasonNoRestarts {
		t.Errorf("service without attempts: %+v", v)
	}
}

func TestStartErrors(t *testing.T) {
	r := newRestarts(policy(1, "fail"), api.JobTypeService, at)
	if v := r.afterStart(errors.New("no"), at); v.event != api.TaskNotRestarting || v.reason != reasonUnrecoverable {
		t.Errorf("got %+v", v)
	}
	r = newRestarts(policy(1, "fail"), api.JobTypeService, at)
	if v := r.afterStart(nomadplugin.Recoverable(errors.New("no")), at); v.event != api.TaskRestarting {
		t.Errorf("got %+v", v)
	}
	if v := r.afterStart(nomadplugin.Recoverable(errors.New("no")), at); v.event != api.TaskNotRestarting {
		t.Errorf("got %+v", v)
	}
	if v := newRestarts(policy(0, "fail"), api.JobTypeService, at).afterStart(nomadplugin.Recoverable(errors.New("no")), at); v.reason != reasonNoRestarts {
		t.Errorf("got %+v", v)
	}
}

func TestClientStatus(t *testing.T) {
	s := func(state string, failed bool) *api.TaskState { return &api.TaskState{State: state, Failed: failed} }
	for want, states := range map[string]map[string]*api.TaskState{
		"Tasks are running":        {"a": s(taskRunning, false), "b": s(taskPending, false)},
		"Failed tasks":             {"a": s(taskRunning, false), "b": s(taskDead, true)},
		"No tasks have started":    {"a": s(taskPending, false), "b": s(taskDead, false)},
		"All tasks have completed": {"a": s(taskDead, false)},
	} {
		if _, got := clientStatus(states); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	for want, m := range map[int64]api.AllocatedMemoryResources{
		512 << 20:  {MemoryMB: 512},
		1024 << 20: {MemoryMB: 512, MemoryMaxMB: 1024},
		0:          {MemoryMB: 512, MemoryMaxMB: -1}, // NMD-10: no limit
	} {
		if got := memoryLimit(m); got != want {
			t.Errorf("%+v: %d, want %d", m, got, want)
		}
	}
}
