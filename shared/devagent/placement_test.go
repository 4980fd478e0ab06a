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
			id := strings.ReplaceAll(name, " ", "-")
			resp := register(t, a.Client, strings.Replace(c.job, `job "x"`, fmt.Sprintf("job %q", id), 1))
			m := blocked(t, a.Client, id)
			if m == nil || !c.check(m) {
				text, _ := json.Marshal(m)
				t.Errorf("got %s", text)
			}
			e, _, err := a.Client.Evaluations().Info(resp.EvalID, nil)
			if err != nil || e.Status != "complete" || e.BlockedEval == "" || e.QueuedAllocations["g"] != 1 || e.TriggeredBy != "job-register" {
				t.Errorf("evaluation %+v, %v", e, err)
			}
			job, _, err := a.Client.Jobs().Info(id, nil)
			if err != nil || (*job.Status != "pending" && *job.TaskGroups[0].Count == 1) {
				t.Errorf("job is %s, %v", *job.Status, err)
			}
			if _, _, err := a.Client.Jobs().Deregister(id, true, nil); err != nil {
				t.Fatal(err)
			}
			devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
				return !running(id)(all)
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
