// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

func testNode() *api.Node {
	return &api.Node{
		ID: "n1", Name: "vm", Datacenter: "dc1", NodePool: "default", Status: "ready", SchedulingEligibility: "eligible",
		Attributes: map[string]string{"kernel.name": "linux", "cores": "8", "version": "1.12.0-beta1", "kinds": "docker, host"},
		Meta:       map[string]string{"rack": "r1"},
		Drivers:    map[string]*api.DriverInfo{"d": {Detected: true, Healthy: true}, "sick": {Detected: true}},
		NodeResources: &api.NodeResources{
			Cpu:    api.NodeCpuResources{CpuShares: 1000, TotalCpuCores: 2, ReservableCpuCores: []uint16{0, 1}},
			Memory: api.NodeMemoryResources{MemoryMB: 1000}, Disk: api.NodeDiskResources{DiskMB: 10000},
		},
	}
}

func testJob(edit func(*api.Job)) *api.Job {
	id, ns, group, version, index, pool := "j", "default", "g", uint64(0), uint64(5), "default"
	cpu, memory := 100, 100
	j := &api.Job{
		ID: &id, Namespace: &ns, Version: &version, CreateIndex: &index, Datacenters: []string{"*"}, NodePool: &pool,
		TaskGroups: []*api.TaskGroup{{Name: &group, Tasks: []*api.Task{{Name: "t", Driver: "d", Resources: &api.Resources{CPU: &cpu, MemoryMB: &memory}}}}},
	}
	if edit != nil {
		edit(j)
	}
	j.Canonicalize()
	j.Version, j.CreateIndex = &version, &index
	return j
}

func input(j *api.Job, allocs ...*api.Allocation) Input {
	return Input{Job: j, Allocs: allocs, Node: testNode(), Region: "global", Eval: &api.Evaluation{ID: "e"}, Now: time.Unix(1000, 0)}
}

// started schedules a new job and gives what was placed as running.
func started(t *testing.T, j *api.Job) []*api.Allocation {
	t.Helper()
	p := Schedule(input(j))
	for _, a := range p.Place {
		a.ClientStatus = api.AllocClientStatusRunning
	}
	return p.Place
}

func next(j *api.Job, edit func(*api.Job)) *api.Job {
	version := *j.Version + 1
	out := testJob(edit)
	out.Version = &version
	return out
}

func TestConstraints(t *testing.T) {
	names := newNode(testNode(), "global", nil, nil).names
	for _, c := range []struct {
		left, operand, right string
		want                 bool
	}{
		{"${attr.kernel.name}", "=", "linux", true},
		{"${attr.kernel.name}", "is", "plan9", false},
		{"${attr.kernel.name}", "!=", "plan9", true},
		{"${attr.none}", "!=", "x", true},
		{"${attr.none}", "=", "x", false},
		{"${attr.none}", "is_set", "", false},
		{"${attr.none}", "is_not_set", "", true},
		{"${attr.cores}", ">", "16", false}, // as numbers, not as text
		{"${attr.cores}", "<", "16", true},
		{"${attr.cores}", ">=", "7.5", true},
		{"b", ">", "a", true},
		{"${attr.version}", "version", ">= 1.12", false}, // a pre-release was not asked for
		{"${attr.version}", "version", ">= 1.12.0-beta1", true},
		{"${attr.version}", "semver", ">= 1.11.0", true},
		{"${attr.version}", "semver", ">= 1.12.0", false}, // 1.12.0-beta1 comes before 1.12.0
		{"${attr.version}", "version", "nonsense", false},
		{"${attr.kinds}", "set_contains", "host,docker", true},
		{"${attr.kinds}", "set_contains_all", "host,vm", false},
		{"${attr.kinds}", "set_contains_any", "vm, host", true},
		{"${attr.kernel.name}", "regexp", "^lin", true},
		{"${attr.kernel.name}", "regexp", "(", false},
		{"${meta.rack}", "=", "r1", true},
		{"${node.datacenter}", "=", "dc1", true},
		{"${node.unique.id}", "=", "n1", true},
		{"x", "~", "x", false},
	} {
		got := meets(&api.Constraint{LTarget: c.left, Operand: c.operand, RTarget: c.right}, names)
		if got != c.want {
			t.Errorf("%s %s %s: %v, want %v", c.left, c.operand, c.right, got, c.want)
		}
	}
}

func TestPlacesAndKeeps(t *testing.T) {
	count := 3
	j := testJob(func(j *api.Job) { j.TaskGroups[0].Count = &count })
	running := started(t, j)
	if len(running) != 3 || running[2].Name != "j.g[2]" || running[0].AllocatedResources.Tasks["t"].Memory.MemoryMB != 100 {
		t.Fatalf("placed %+v", running)
	}
	p := Schedule(input(j, running...))
	if len(p.Place)+len(p.Stop)+len(p.Update) != 0 || p.Desired["g"].Ignore != 3 {
		t.Errorf("got %+v", p)
	}
}

// A replacement is planned only where it fits, counting what the old one gives back.
func TestReplaceCountsTheOldOnesRoom(t *testing.T) {
	most, more := 900, 950
	j := testJob(func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &most })
	running := started(t, j)
	p := Schedule(input(next(j, func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &more }), running...))
	if len(p.Place) != 1 || len(p.Stop) != 1 || p.Place[0].PreviousAllocation != running[0].ID || p.Stop[0].DesiredDescription != StopUpdating {
		t.Errorf("got %+v", p)
	}
	tooMuch := 1001
	p = Schedule(input(next(j, func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &tooMuch }), running...))
	if len(p.Place)+len(p.Stop) != 0 || p.Failed["g"].DimensionExhausted["memory"] != 1 {
		t.Errorf("the old one is stopped without a new one: %+v", p)
	}
}

func TestRollingBound(t *testing.T) {
	count := 3
	edit := func(j *api.Job) { j.TaskGroups[0].Count = &count }
	j := testJob(edit)
	running := started(t, j)
	in := input(next(j, func(j *api.Job) { edit(j); j.TaskGroups[0].Tasks[0].User = "x" }), running...)
	in.MaxReplace = map[string]int{"g": 1}
	if p := Schedule(in); len(p.Place) != 1 || p.Desired["g"].DestructiveUpdate != 1 || p.Desired["g"].Ignore != 2 {
		t.Errorf("got %+v", p.Desired["g"])
	}
}

func TestInPlaceUpdate(t *testing.T) {
	files := 3
	j := testJob(nil)
	running := started(t, j)
	p := Schedule(input(next(j, func(j *api.Job) { j.TaskGroups[0].Tasks[0].LogConfig = &api.LogConfig{MaxFiles: &files} }), running...))
	if len(p.Update) != 1 || p.Update[0].ID != running[0].ID || *p.Update[0].Job.Version != 1 || len(p.Stop)+len(p.Place) != 0 {
		t.Errorf("got %+v", p)
	}
}

func TestRemovedGroupAndPurgedJob(t *testing.T) {
	j := testJob(nil)
	running := started(t, j)
	other := "other"
	p := Schedule(input(next(j, func(j *api.Job) { j.TaskGroups[0].Name = &other }), running...))
	if len(p.Stop) != 1 || len(p.Place) != 1 || p.Stop[0].DesiredDescription != StopNotNeeded {
		t.Errorf("removed group: %+v", p)
	}
	p = Schedule(input(nil, running...))
	if len(p.Stop) != 1 || p.Desired["g"].Stop != 1 {
		t.Errorf("purged job: %+v", p)
	}
}

func TestSystemJobRunsOnce(t *testing.T) {
	kind, count := "system", 5
	j := testJob(func(j *api.Job) { j.Type, j.TaskGroups[0].Count = &kind, &count })
	if p := Schedule(input(j)); len(p.Place) != 1 {
		t.Errorf("placed %d", len(p.Place))
	}
}

func TestIneligibleNode(t *testing.T) {
	in := input(testJob(nil))
	in.Node.SchedulingEligibility = api.NodeSchedulingIneligible
	p := Schedule(in)
	if m := p.Failed["g"]; m == nil || m.NodesEvaluated != 0 || p.Queued["g"] != 1 {
		t.Errorf("got %+v", p)
	}
}

func TestSickDriver(t *testing.T) {
	p := Schedule(input(testJob(func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "sick" })))
	if p.Failed["g"].ConstraintFiltered[missingDrivers] != 1 {
		t.Errorf("got %+v", p.Failed["g"])
	}
}

func TestCores(t *testing.T) {
	two := 2
	j := testJob(func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources = &api.Resources{Cores: &two} })
	running := started(t, j)
	if got := running[0].AllocatedResources.Tasks["t"].Cpu; len(got.ReservedCores) != 2 || got.CpuShares != 1000 {
		t.Errorf("got %+v", got)
	}
	in := input(testJob(func(j *api.Job) { one := 1; j.TaskGroups[0].Tasks[0].Resources = &api.Resources{Cores: &one} }))
	in.Others = running
	if p := Schedule(in); p.Failed["g"].DimensionExhausted["cores"] != 1 {
		t.Errorf("got %+v", p.Failed["g"])
	}
}

func TestDynamicPortsAreFreeAndDistinct(t *testing.T) {
	j := testJob(func(j *api.Job) {
		j.TaskGroups[0].Networks = []*api.NetworkResource{{DynamicPorts: []api.Port{{Label: "a"}, {Label: "b", To: -1}, {Label: "c", To: 80}}}}
	})
	in := input(j)
	in.PortFree = func(port int) bool { return port == 20001 || port == 20002 || port == 31999 }
	p := Schedule(in)
	if len(p.Place) != 1 {
		t.Fatalf("got %+v", p.Failed["g"])
	}
	seen := map[int]bool{}
	for _, m := range p.Place[0].AllocatedResources.Shared.Ports {
		if !in.PortFree(m.Value) || seen[m.Value] || m.Label == "b" && m.To != m.Value || m.Label == "c" && m.To != 80 {
			t.Errorf("got %+v", m)
		}
		seen[m.Value] = true
	}
	in.PortFree = func(int) bool { return false }
	if p := Schedule(in); p.Failed["g"].DimensionExhausted["network: dynamic port selection failed"] != 1 {
		t.Errorf("got %+v", p.Failed["g"])
	}
}

func TestRescheduleDelay(t *testing.T) {
	delay, most := 5*time.Second, 30*time.Second
	for function, want := range map[string][]time.Duration{
		"constant":    {5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		"exponential": {5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second},
		"fibonacci":   {5 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second},
	} {
		for n, d := range want {
			if got := rescheduleDelay(&api.ReschedulePolicy{Delay: &delay, MaxDelay: &most, DelayFunction: &function}, n); got != d {
				t.Errorf("%s after %d: %v, want %v", function, n, got, d)
			}
		}
	}
}

func TestRescheduleLater(t *testing.T) {
	j := testJob(nil) // a service: 30 s, doubling, unlimited
	running := started(t, j)
	failed := *running[0]
	failed.ClientStatus = api.AllocClientStatusFailed
	failed.TaskStates = map[string]*api.TaskState{"t": {State: "dead", Failed: true, FinishedAt: time.Unix(990, 0)}}
	p := Schedule(input(j, &failed))
	if len(p.FollowUps) != 1 || !p.FollowUps[0].At.Equal(time.Unix(1020, 0)) || p.Desired["g"].RescheduleLater != 1 || len(p.Place) != 0 {
		t.Fatalf("got %+v", p)
	}
	waiting := failed
	waiting.FollowupEvalID = "later"
	if p := Schedule(input(j, &waiting)); len(p.FollowUps)+len(p.Place) != 0 {
		t.Errorf("asked twice: %+v", p)
	}
	in := input(j, &waiting)
	in.Now = time.Unix(1020, 0)
	p = Schedule(in)
	if len(p.Place) != 1 || p.Stop[0].DesiredDescription != StopRescheduled || len(p.Place[0].RescheduleTracker.Events) != 1 {
		t.Errorf("got %+v", p)
	}
	none := false
	zero := 0
	j.TaskGroups[0].ReschedulePolicy.Unlimited, j.TaskGroups[0].ReschedulePolicy.Attempts = &none, &zero
	if p := Schedule(in); len(p.Place)+len(p.FollowUps) != 0 {
		t.Errorf("a policy without attempts: %+v", p)
	}
}

func TestIndex(t *testing.T) {
	for name, want := range map[string]int{"j.g[3]": 3, "a[b].g[12]": 12, "odd": 0, "x[y]": 0} {
		if got := Index(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
