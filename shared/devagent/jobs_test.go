// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// blocked waits for the blocked evaluation of a job and gives its metric.
func blocked(t *testing.T, c *api.Client, job string) *api.AllocationMetric {
	t.Helper()
	q := &api.QueryOptions{}
	for {
		evals, meta, err := c.Jobs().Evaluations(job, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evals {
			if e.Status == "blocked" {
				return e.FailedTGAllocs["g"]
			}
		}
		q.WaitIndex = meta.LastIndex
	}
}

// Placements that fail stay pending with the reason, as Nomad 2.0.5 words it.
func TestUnplaceableJobsSayWhy(t *testing.T) {
	a := devagenttest.Start(t)
	constraint := func(text string) string {
		return strings.Replace(shell("x", "exec sleep 1000", ""), "group \"g\" {", "group \"g\" {\n"+text, 1)
	}
	for name, c := range map[string]struct {
		job   string
		check func(m *api.AllocationMetric) bool
	}{
		"absent driver": {strings.Replace(shell("x", "x", ""), devagenttest.DriverName, "nosuch", 1), func(m *api.AllocationMetric) bool {
			return m.NodesEvaluated == 1 && m.NodesFiltered == 1 && m.ConstraintFiltered["missing drivers"] == 1
		}},
		"constraint": {constraint("constraint {\nattribute = \"${attr.kernel.name}\"\nvalue = \"plan9\"\n}"), func(m *api.AllocationMetric) bool {
			return m.NodesFiltered == 1 && m.ConstraintFiltered["${attr.kernel.name} = plan9"] == 1
		}},
		"set of kinds": {constraint("constraint {\nattribute = \"${attr.driver.shelltest.kinds}\"\nset_contains_any = \"c,d\"\n}"), func(m *api.AllocationMetric) bool {
			return m.ConstraintFiltered["${attr.driver.shelltest.kinds} set_contains_any c,d"] == 1
		}},
		"memory": {strings.Replace(shell("x", "x", ""), "memory = 20", "memory = 50000000", 1), func(m *api.AllocationMetric) bool {
			return m.NodesExhausted == 1 && m.DimensionExhausted["memory"] == 1 && *m.ResourcesExhausted["t"].MemoryMB == 50000000
		}},
		"cpu": {strings.Replace(shell("x", "x", ""), "cpu    = 10", "cpu    = 50000000", 1), func(m *api.AllocationMetric) bool {
			return m.DimensionExhausted["cpu"] == 1
		}},
		"cores": {strings.Replace(shell("x", "x", ""), "cpu    = 10", "cores  = 5000", 1), func(m *api.AllocationMetric) bool {
			return m.DimensionExhausted["cores"] == 1
		}},
		"datacenter": {strings.Replace(shell("x", "x", ""), "type = \"service\"", "datacenters = [\"mars\"]", 1), func(m *api.AllocationMetric) bool {
			return m.NodesEvaluated == 0 && m.NodesInPool == 0 && len(m.NodesAvailable) == 0 && m.NodePool == "default"
		}},
		"distinct hosts": {strings.Replace(constraint("count = 2\nconstraint {\ndistinct_hosts = true\n}"), "\"x\"", "\"x\"", 1), func(m *api.AllocationMetric) bool {
			return m.ConstraintFiltered["distinct_hosts"] == 1
		}},
		"one port twice": {constraint("count = 2\nnetwork {\nport \"p\" {\nstatic = 39999\n}\n}"), func(m *api.AllocationMetric) bool {
			return m.DimensionExhausted["network: reserved port collision p=39999"] == 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			resp := register(t, a.Client, c.job)
			m := blocked(t, a.Client, "x")
			if m == nil || !c.check(m) {
				text, _ := json.Marshal(m)
				t.Errorf("got %s", text)
			}
			e, _, err := a.Client.Evaluations().Info(resp.EvalID, nil)
			if err != nil || e.Status != "complete" || e.BlockedEval == "" || e.QueuedAllocations["g"] != 1 || e.TriggeredBy != "job-register" {
				t.Errorf("evaluation %+v, %v", e, err)
			}
			job, _, err := a.Client.Jobs().Info("x", nil)
			if err != nil || (*job.Status != "pending" && *job.TaskGroups[0].Count == 1) {
				t.Errorf("job is %s, %v", *job.Status, err)
			}
			if _, _, err := a.Client.Jobs().Deregister("x", true, nil); err != nil {
				t.Fatal(err)
			}
			devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
				return !running("x")(all)
			})
		})
	}
}

// A blocked job starts by itself when the node changes: a driver that gets well, room
// that is given back.
func TestBlockedJobStartsWhenThereIsRoom(t *testing.T) {
	a := devagenttest.Start(t)
	ill := filepath.Join(a.DriverDir, "ill")
	if err := os.WriteFile(ill, []byte("Xvnc is missing"), 0o600); err != nil {
		t.Fatal(err)
	}
	health := func(want bool) {
		q := &api.QueryOptions{}
		for {
			list, meta, err := a.Client.Nodes().List(q)
			if err != nil {
				t.Fatal(err)
			}
			if list[0].Drivers[devagenttest.DriverName].Healthy == want {
				return
			}
			q.WaitIndex = meta.LastIndex
		}
	}
	health(false)
	register(t, a.Client, shell("well", "exec sleep 1000", ""))
	if m := blocked(t, a.Client, "well"); m.ConstraintFiltered["missing drivers"] != 1 {
		t.Errorf("got %+v", m)
	}
	if err := os.Remove(ill); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, running("well"))

	list, _, err := a.Client.Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := a.Client.Nodes().Info(list[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	most := strings.Replace(shell("more", "exec sleep 1000", ""), "memory = 20", fmt.Sprintf("memory = %d", n.NodeResources.Memory.MemoryMB-10), 1)
	register(t, a.Client, most)
	if m := blocked(t, a.Client, "more"); m.DimensionExhausted["memory"] != 1 {
		t.Errorf("got %+v", m)
	}
	if _, _, err := a.Client.Jobs().Deregister("well", false, nil); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, running("more"))
	evals, _, err := a.Client.Jobs().Evaluations("more", nil)
	if err != nil || slices.ContainsFunc(evals, func(e *api.Evaluation) bool { return e.Status == "blocked" }) {
		t.Errorf("still blocked: %v", err)
	}
}

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

// A failed allocation is replaced as its reschedule policy says, and no more.
func TestReschedule(t *testing.T) {
	a := devagenttest.Start(t)
	job := strings.Replace(shell("re", "exit 1", ""), "attempts  = 0\n      unlimited = false",
		"attempts = 2\ninterval = \"1h\"\ndelay = \"50ms\"\ndelay_function = \"constant\"\nunlimited = false", 1)
	job = strings.Replace(job, "attempts = 1\n      interval = \"10m\"", "attempts = 0\n      interval = \"10m\"", 1)
	register(t, a.Client, job)
	all := devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		n := 0
		for _, x := range all {
			if x.ClientStatus == api.AllocClientStatusFailed {
				n++
			}
		}
		return n == 3
	})
	last := one(t, a.Client, "re")
	if last.RescheduleTracker == nil || len(last.RescheduleTracker.Events) != 2 || last.NextAllocation != "" {
		t.Errorf("tracker %+v", last.RescheduleTracker)
	}
	for _, x := range all {
		if x.ID != last.ID && x.DesiredDescription != "alloc was rescheduled because it failed" {
			t.Errorf("%s: %q", x.ID, x.DesiredDescription)
		}
	}
	await(t, func() bool {
		info, _, err := a.Client.Jobs().Info("re", nil)
		return err == nil && *info.Status == "dead"
	})
}

// What the agent does not run is refused by name, also in a job that comes as JSON,
// and nothing is registered.
func TestUnsupportedJobsAreRefused(t *testing.T) {
	a := devagenttest.Start(t)
	for want, edit := range map[string]func(j *api.Job){
		`"periodic" in job`:                        func(j *api.Job) { spec := "@daily"; j.Periodic = &api.PeriodicConfig{Spec: &spec} },
		`"service" in group "g"`:                   func(j *api.Job) { j.TaskGroups[0].Services = []*api.Service{{Name: "web"}} },
		`"volume" in group "g"`:                    func(j *api.Job) { j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"v": {Name: "v"}} },
		`"artifact" in group "g" task "t"`:         func(j *api.Job) { j.TaskGroups[0].Tasks[0].Artifacts = []*api.TaskArtifact{{}} },
		`"vault" in group "g" task "t"`:            func(j *api.Job) { j.TaskGroups[0].Tasks[0].Vault = &api.Vault{Role: "x"} },
		`"lifecycle" in group "g" task "t"`:        func(j *api.Job) { j.TaskGroups[0].Tasks[0].Lifecycle = &api.TaskLifecycle{Hook: "prestart"} },
		`"leader" in group "g" task "t"`:           func(j *api.Job) { j.TaskGroups[0].Tasks[0].Leader = true },
		`"device" in group "g" task "t" resources`: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices = []*api.RequestedDevice{{Name: "gpu"}} },
		`"spread" in job`:                          func(j *api.Job) { j.Spreads = []*api.Spread{{}} },
		`network mode "bridge" is not run`:         func(j *api.Job) { j.TaskGroups[0].Networks = []*api.NetworkResource{{Mode: "bridge"}} },
		`canary and auto_promote are not run`:      func(j *api.Job) { n := 1; j.TaskGroups[0].Update.Canary = &n },
		`Template 1 validation failed`: func(j *api.Job) {
			data, dest := `{{ key "x" }}`, "local/x"
			j.TaskGroups[0].Tasks[0].Templates = []*api.Template{{EmbeddedTmpl: &data, DestPath: &dest}}
		},
		`"ephemeral_disk" in group "g"`: func(j *api.Job) { yes := true; j.TaskGroups[0].EphemeralDisk.Sticky = &yes },
	} {
		job := parse(t, a.Client, shell("bad", "x", ""))
		edit(job)
		_, _, err := a.Client.Jobs().Register(job, nil)
		wantText(t, err, want)
	}
	for want, edit := range map[string]func(j *api.Job){
		"Missing task driver":                               func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "" },
		"Job ID contains a space":                           func(j *api.Job) { id := "a b"; j.ID = &id },
		`Invalid job type: "cron"`:                          func(j *api.Job) { kind := "cron"; j.Type = &kind },
		"Job priority must be between [1, 100]":             func(j *api.Job) { n := 101; j.Priority = &n },
		`job "bad" is in nonexistent namespace "elsewhere"`: func(j *api.Job) { ns := "elsewhere"; j.Namespace = &ns },
		`job "bad" is in nonexistent node pool "mars"`:      func(j *api.Job) { pool := "mars"; j.NodePool = &pool },
		`Unsupported restart mode: "often"`:                 func(j *api.Job) { mode := "often"; j.TaskGroups[0].RestartPolicy.Mode = &mode },
		"Task name cannot include slashes":                  func(j *api.Job) { j.TaskGroups[0].Tasks[0].Name = "../x" },
		`Unknown constraint type "~"`:                       func(j *api.Job) { j.Constraints = []*api.Constraint{{LTarget: "a", Operand: "~"}} },
		"minimum MemoryMB value is 10; got 1":               func(j *api.Job) { n := 1; j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &n },
	} {
		job := parse(t, a.Client, shell("bad", "x", ""))
		edit(job)
		_, _, err := a.Client.Jobs().Register(job, nil)
		wantText(t, err, want)
	}
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// A job that was read from the agent can be sent back: what Nomad fills in is no
// request.
func TestJobCanBeSentBack(t *testing.T) {
	a, _ := start(t, "back", "exec sleep 1000", "")
	job, _, err := a.Client.Jobs().Info("back", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := a.Client.Jobs().Register(job, nil)
	if err != nil || resp.JobModifyIndex != *job.JobModifyIndex {
		t.Errorf("got %+v, %v", resp, err)
	}
	again, _, err := a.Client.Jobs().Info("back", nil)
	if err != nil || *again.Version != *job.Version {
		t.Errorf("version %d became %d, %v", *job.Version, *again.Version, err)
	}
}

// The positions of a job file's faults come through the API.
func TestParseFaultsHavePositions(t *testing.T) {
	a := devagenttest.Start(t)
	for _, text := range []string{"job \"x\" {\n bogus {}\n}", "job \"x\" {", strings.Repeat("%&/()=?{", 1<<17)} {
		_, err := a.Client.Jobs().ParseHCL(text, true)
		wantText(t, err, "400")
		wantText(t, err, "Failed to parse job: input.hcl:")
	}
	_, err := a.Client.Jobs().ParseHCL(strings.Repeat("#", 9<<20), true)
	wantText(t, err, "413")
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
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
