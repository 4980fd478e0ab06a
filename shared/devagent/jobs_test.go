// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// failed waits until a job's allocation failed and gives its task.
func failed(t *testing.T, a *devagenttest.Agent, job string) *api.TaskState {
	t.Helper()
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return slices.ContainsFunc(all, func(x *api.AllocationListStub) bool {
			return x.JobID == job && x.ClientStatus == api.AllocClientStatusFailed
		})
	})
	alloc := one(t, a.Client, job)
	if alloc.ClientDescription != "Failed tasks" {
		t.Errorf("description %q", alloc.ClientDescription)
	}
	return alloc.TaskStates["t"]
}

func find(s *api.TaskState, kind string) *api.TaskEvent {
	for _, e := range s.Events {
		if e.Type == kind {
			return e
		}
	}
	return &api.TaskEvent{}
}

// The words of a task's ends are Nomad's.
func TestTaskEndings(t *testing.T) {
	a := devagenttest.Start(t)
	ready := "ready = false"
	config := func(id, command, more string) string {
		return strings.Replace(shell(id, command, ""), fmt.Sprintf("command = %q", command), fmt.Sprintf("command = %q\n%s\n%s", command, ready, more), 1)
	}
	t.Run("restarts are used up", func(t *testing.T) {
		register(t, a.Client, config("loop", "exit 3", ""))
		s := failed(t, a, "loop")
		want := []string{"Received", "Task Setup", "Started", "Terminated", "Restarting", "Task Setup", "Started", "Terminated", "Not Restarting"}
		if got := eventTypes(s); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if got := find(s, "Terminated").DisplayMessage; got != "Exit Code: 3" {
			t.Errorf("terminated: %q", got)
		}
		if got := find(s, "Not Restarting").DisplayMessage; got != `Exceeded allowed attempts 1 in interval 10m0s and mode is "fail"` {
			t.Errorf("not restarting: %q", got)
		}
		if got := find(s, "Restarting").DisplayMessage; !strings.HasPrefix(got, "Task restarting in 1") {
			t.Errorf("restarting: %q", got)
		}
		if s.Restarts != 1 || !s.Failed || s.FinishedAt.IsZero() {
			t.Errorf("state %+v", s)
		}
	})
	t.Run("a signal", func(t *testing.T) {
		register(t, a.Client, config("sig", "kill -9 $$", ""))
		if got := find(failed(t, a, "sig"), "Terminated"); got.DisplayMessage != "Exit Code: 137, Signal: 9" || got.Details["oom_killed"] != "false" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a fatal start", func(t *testing.T) {
		register(t, a.Client, config("fatal", "x", `fail_start = "fatal"`))
		s := failed(t, a, "fatal")
		if got := find(s, "Driver Failure").DisplayMessage; got != "rpc error: code = Unknown desc = isolation_refused: docker does not answer on this node" {
			t.Errorf("driver failure: %q", got)
		}
		if got := find(s, "Not Restarting").DisplayMessage; got != "Error was unrecoverable" {
			t.Errorf("not restarting: %q", got)
		}
	})
	t.Run("a recoverable start", func(t *testing.T) {
		register(t, a.Client, config("floor", "x", `fail_start = "recoverable"`))
		s := failed(t, a, "floor")
		if got := find(s, "Driver Failure").DisplayMessage; got != "rpc error: code = FailedPrecondition desc = not enough memory: 1210 MB available, floor 1536 MB" {
			t.Errorf("driver failure: %q", got)
		}
		if s.Restarts != 1 {
			t.Errorf("%d restarts", s.Restarts)
		}
	})
	// Issue 7: nobody has refused the task.
	t.Run("a start of which the driver dies twice", func(t *testing.T) {
		register(t, a.Client, config("dies", "exec sleep 1000", `fail_start = "dies"`))
		var s *api.TaskState
		await(t, func() bool {
			all, _, err := a.Client.Jobs().Allocations("dies", true, nil)
			if err != nil || len(all) != 1 {
				return false
			}
			s = all[0].TaskStates["t"]
			return s != nil && (s.State == "running" || s.Failed)
		})
		if got := find(s, "Driver Failure").DisplayMessage; got != "plugin is shut down" {
			t.Errorf("driver failure: %q", got)
		}
		if s.Restarts != 1 || s.Failed {
			t.Errorf("state %+v", s)
		}
	})
	t.Run("a bad configuration", func(t *testing.T) {
		register(t, a.Client, config("bad", "x", `bogus = 1`))
		s := failed(t, a, "bad")
		if got := find(s, "Failed Validation").DisplayMessage; !strings.Contains(got, `failed to parse config: `) || !strings.Contains(got, "bogus") {
			t.Errorf("failed validation: %q", got)
		}
		if s.Restarts != 0 {
			t.Errorf("%d restarts", s.Restarts)
		}
	})
	t.Run("an unknown variable", func(t *testing.T) {
		register(t, a.Client, config("var", "x", `args = ["${attr.no.such}"]`))
		if got := find(failed(t, a, "var"), "Failed Validation").DisplayMessage; !strings.Contains(got, "failed to parse config") {
			t.Errorf("failed validation: %q", got)
		}
	})
}

// NMD-16: variables are replaced once, wherever they stand in the configuration.
func TestInterpolation(t *testing.T) {
	a := devagenttest.Start(t)
	job := strings.Replace(shell("inter", `echo "$1|$2|$WHO"; exec sleep 1000`, "env {\nWHO = \"${NOMAD_META_lane} ${node.datacenter}\"\n}\nmeta {\nlane = \"blue\"\n}"),
		"config {", "config {\nargs = [\"${NOMAD_META_lane}-${NOMAD_ALLOC_INDEX}\", \"${attr.kernel.name} $${literal}\"]\nlabels = {\n\"a.b/c\" = \"${meta.rack}\"\n}\n", 1)
	// Nomad's own job language takes one level of escaping: $${ arrives as ${ and is a
	// reference then, so a literal needs $$${ in the file.
	job = strings.Replace(job, "$${literal}", "$$${literal}", 1)
	register(t, a.Client, job)
	devagenttest.AwaitAllocs(t, a.Client, running("inter"))
	alloc := one(t, a.Client, "inter")
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "\n") })
	if got := readLog(t, a, alloc, "start", 0); got != "blue-0|linux ${literal}|blue dc1\n" {
		t.Errorf("got %q", got)
	}
}

// A task that fails for good takes the others of its group with it.
func TestSiblingFails(t *testing.T) {
	a := devagenttest.Start(t)
	job := strings.Replace(shell("two", "exit 1", ""), "task \"t\" {", fmt.Sprintf(`task "other" {
      driver = %q
      config {
        command = "exec sleep 1000"
      }
      resources {
        cpu    = 10
        memory = 20
      }
    }
    task "t" {`, devagenttest.DriverName), 1)
	register(t, a.Client, job)
	failed(t, a, "two")
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool { return all[0].TaskStates["other"].State == "dead" })
	other := one(t, a.Client, "two").TaskStates["other"]
	if got := find(other, "Sibling Task Failed").DisplayMessage; got != `Task's sibling "t" failed` {
		t.Errorf("got %q in %v", got, eventTypes(other))
	}
}

func TestBatchJob(t *testing.T) {
	a := devagenttest.Start(t)
	job := strings.Replace(shell("batch", "exit 0", ""), `"service"`, `"batch"`, 1)
	register(t, a.Client, job)
	done := func(n int) func([]*api.AllocationListStub) bool {
		return func(all []*api.AllocationListStub) bool {
			complete := 0
			for _, x := range all {
				if x.ClientStatus == api.AllocClientStatusComplete {
					complete++
				}
			}
			return complete == n && len(all) == n
		}
	}
	devagenttest.AwaitAllocs(t, a.Client, done(1))
	// Unchanged, it does not run again; changed, it does.
	register(t, a.Client, job)
	evals, _, err := a.Client.Jobs().Evaluations("batch", nil)
	if err != nil || len(evals) < 2 {
		t.Fatalf("%d evaluations, %v", len(evals), err)
	}
	await(t, func() bool {
		evals, _, err = a.Client.Jobs().Evaluations("batch", nil)
		return err == nil && !slices.ContainsFunc(evals, func(e *api.Evaluation) bool { return e.Status == "pending" })
	})
	devagenttest.AwaitAllocs(t, a.Client, done(1))
	register(t, a.Client, strings.Replace(job, "task \"t\" {", "meta {\ngeneration = \"2\"\n}\ntask \"t\" {", 1))
	devagenttest.AwaitAllocs(t, a.Client, done(2))
	info, _, err := a.Client.Jobs().Info("batch", nil)
	if err != nil || *info.Version != 1 {
		t.Errorf("version %d, %v", *info.Version, err)
	}
	await(t, func() bool {
		info, _, err = a.Client.Jobs().Info("batch", nil)
		return err == nil && *info.Status == "dead"
	})
}

// A change that needs new processes replaces the task after the old one ended; one
// that does not leaves it alone.
func TestUpdates(t *testing.T) {
	a := devagenttest.Start(t)
	job := shell("up", ticking, "")
	register(t, a.Client, job)
	devagenttest.AwaitAllocs(t, a.Client, running("up"))
	first := one(t, a.Client, "up")
	pid := pidOf(t, a.Client, first.ID)

	register(t, a.Client, strings.Replace(job, "delay    = \"10ms\"", "delay    = \"20ms\"", 1))
	await(t, func() bool { return *one(t, a.Client, "up").Job.Version == 1 })
	if same := one(t, a.Client, "up"); same.ID != first.ID || devagenttest.StartTime(pid) == "" {
		t.Error("a change in place replaced the task")
	}

	register(t, a.Client, strings.Replace(job, "kill_timeout", "user = \"\"\nkill_signal = \"SIGKILL\"\nenv {\nX = \"1\"\n}\nkill_timeout", 1))
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return slices.ContainsFunc(all, func(x *api.AllocationListStub) bool {
			return x.ID != first.ID && x.ClientStatus == api.AllocClientStatusRunning
		})
	})
	devagenttest.AwaitGone(t, pid)
	old, _, err := a.Client.Allocations().Info(first.ID, nil)
	if err != nil || old.DesiredDescription != "alloc is being updated due to job update" || old.NextAllocation == "" {
		t.Errorf("old allocation: %q, next %q, %v", old.DesiredDescription, old.NextAllocation, err)
	}
	next := one(t, a.Client, "up")
	if next.PreviousAllocation != first.ID {
		t.Errorf("previous allocation %q", next.PreviousAllocation)
	}
	// The old task had ended before the new one began.
	if begin, end := next.TaskStates["t"].StartedAt, old.TaskStates["t"].FinishedAt; begin.Before(end) {
		t.Errorf("the new task began at %v, the old one ended at %v", begin, end)
	}
	versions, _, _, err := a.Client.Jobs().Versions("up", false, nil)
	if err != nil || len(versions) != 3 {
		t.Errorf("%d versions, %v", len(versions), err)
	}
}

func TestCountDownStopsTheHighest(t *testing.T) {
	a := devagenttest.Start(t)
	job := func(n int) string {
		return strings.Replace(shell("many", "exec sleep 1000", ""), "group \"g\" {", fmt.Sprintf("group \"g\" {\ncount = %d", n), 1)
	}
	register(t, a.Client, job(3))
	live := func(names ...string) func([]*api.AllocationListStub) bool {
		return func(all []*api.AllocationListStub) bool {
			var got []string
			for _, x := range all {
				if x.ClientStatus == api.AllocClientStatusRunning || x.ClientStatus == api.AllocClientStatusPending {
					got = append(got, x.Name)
				}
			}
			slices.Sort(got)
			return slices.Equal(got, names)
		}
	}
	devagenttest.AwaitAllocs(t, a.Client, live("many.g[0]", "many.g[1]", "many.g[2]"))
	register(t, a.Client, job(1))
	all := devagenttest.AwaitAllocs(t, a.Client, live("many.g[0]"))
	for _, x := range all {
		if x.Name != "many.g[0]" && x.DesiredDescription != "alloc not needed due to job update" {
			t.Errorf("%s: %q", x.Name, x.DesiredDescription)
		}
	}
}

func TestPortsAndEnvironment(t *testing.T) {
	a := devagenttest.Start(t)
	job := strings.Replace(shell("ports", "env; exec sleep 1000", ""), "task \"t\" {", "network {\nport \"vnc\" {\nto = 5901\n}\nport \"web\" {\nstatic = 38080\n}\n}\ntask \"t\" {", 1)
	register(t, a.Client, job)
	devagenttest.AwaitAllocs(t, a.Client, running("ports"))
	alloc := one(t, a.Client, "ports")
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "NOMAD_TASK_DIR") })
	log := readLog(t, a, alloc, "start", 0)
	ports := alloc.AllocatedResources.Shared.Ports
	if len(ports) != 2 || ports[0].Label != "web" || ports[0].Value != 38080 || ports[1].To != 5901 || ports[1].Value < 20000 || ports[1].Value > 32000 {
		t.Errorf("ports %+v", ports)
	}
	for _, want := range []string{
		"NOMAD_PORT_web=38080\n", "NOMAD_PORT_vnc=5901\n", fmt.Sprintf("NOMAD_HOST_PORT_vnc=%d\n", ports[1].Value), "NOMAD_IP_web=127.0.0.1\n",
		"NOMAD_ALLOC_ID=" + alloc.ID + "\n", "NOMAD_MEMORY_LIMIT=20\n", "NOMAD_TASK_DIR=" + filepath.Join(a.DataDir(), "alloc", alloc.ID, "t", "local") + "\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in the environment", want)
		}
	}
	if strings.Contains(log, "MAGIC_COOKIE") {
		t.Error("the magic cookie is in the environment")
	}
}
