// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// start runs a job on an agent of its own.
func start(t *testing.T, job, command, more string) (*devagenttest.Agent, *api.Allocation) {
	t.Helper()
	a := devagenttest.Start(t)
	register(t, a.Client, shell(job, command, more))
	devagenttest.AwaitAllocs(t, a.Client, running(job))
	return a, one(t, a.Client, job)
}

func TestBlockingQueryWaitsForItsIndex(t *testing.T) {
	a := devagenttest.Start(t)
	_, meta, err := a.Client.Jobs().List(nil)
	if err != nil || meta.LastIndex == 0 || !meta.KnownLeader {
		t.Fatalf("meta %+v, error %v", meta, err)
	}
	type result struct {
		jobs  []*api.JobListStub
		index uint64
		err   error
	}
	answer := make(chan result, 1)
	go func() {
		jobs, m, err := a.Client.Jobs().List(&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		answer <- result{jobs, m.LastIndex, err}
	}()
	select {
	case r := <-answer:
		t.Fatalf("answered at once: %+v", r)
	case <-time.After(100 * time.Millisecond):
	}
	register(t, a.Client, shell("late", "exec sleep 1000", ""))
	r := <-answer
	if r.err != nil || r.index <= meta.LastIndex || len(r.jobs) != 1 || r.jobs[0].ID != "late" {
		t.Errorf("got %+v", r)
	}

	// Without a change the answer comes when the time is up, with the same index.
	_, before, err := a.Client.Variables().PrefixList("none", nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, after, err := a.Client.Variables().PrefixList("none", &api.QueryOptions{WaitIndex: before.LastIndex, WaitTime: 200 * time.Millisecond})
	if err != nil || after.LastIndex != before.LastIndex || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("index %d after %d in %v, error %v", after.LastIndex, before.LastIndex, time.Since(begin), err)
	}
}

type answer struct {
	status int
	body   string
}

func rawGet(t *testing.T, a *devagenttest.Agent, path string) answer {
	t.Helper()
	return raw(t, a, http.MethodGet, path, "")
}

func raw(t *testing.T, a *devagenttest.Agent, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Nomad-Token", tokenOf(t, a))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, string(text)}
}

func TestEnforcedIndex(t *testing.T) {
	a := devagenttest.Start(t)
	job := parse(t, a.Client, shell("j", "exec sleep 1000", ""))
	_, _, err := a.Client.Jobs().EnforceRegister(job, 7, nil)
	wantText(t, err, "Enforcing job modify index 7: job does not exist")
	resp, _, err := a.Client.Jobs().EnforceRegister(job, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Client.Jobs().EnforceRegister(job, 0, nil)
	wantText(t, err, "Enforcing job modify index 0: job already exists")
	_, _, err = a.Client.Jobs().EnforceRegister(job, resp.JobModifyIndex+100, nil)
	wantText(t, err, fmt.Sprintf("Enforcing job modify index %d: job exists with conflicting job modify index: %d", resp.JobModifyIndex+100, resp.JobModifyIndex))
	// An unchanged job keeps its index and its version.
	again, _, err := a.Client.Jobs().EnforceRegister(job, resp.JobModifyIndex, nil)
	if err != nil || again.JobModifyIndex != resp.JobModifyIndex {
		t.Errorf("got %+v, %v", again, err)
	}
}

func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s", err, text)
	}
}

func TestStopWithPurge(t *testing.T) {
	a, alloc := start(t, "gone", "exec sleep 1000", "")
	if _, _, err := a.Client.Jobs().Deregister("gone", true, nil); err != nil {
		t.Fatal(err)
	}
	_, _, err := a.Client.Jobs().Info("gone", nil)
	wantText(t, err, "job not found")
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return all[0].ClientStatus == api.AllocClientStatusComplete
	})
	// What is left of it goes with the garbage; its directory too.
	dir := filepath.Join(a.DataDir(), "alloc", alloc.ID)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := a.Client.System().GarbageCollect(); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool { return len(all) == 0 })
	await(t, func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})

	// A job that is gone is stopped without an evaluation, as by Nomad.
	id, _, err := a.Client.Jobs().Deregister("gone", true, nil)
	if err != nil || id != "" {
		t.Errorf("got evaluation %q, error %v", id, err)
	}
}

// await polls what no query tells.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		<-tick.C
	}
}

func TestRestartAndSignal(t *testing.T) {
	a, alloc := start(t, "again", "trap 'echo hup' HUP; echo start; while :; do sleep 0.05; done", "")
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "start") })
	if err := a.Client.Allocations().Signal(alloc, nil, "t", "SIGHUP"); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "hup") })
	if err := a.Client.Allocations().Signal(alloc, nil, "t", "SIGNONSENSE"); err == nil || !strings.Contains(err.Error(), `signal "SIGNONSENSE" is unknown`) {
		t.Errorf("got %v", err)
	}
	if err := a.Client.Allocations().Restart(alloc, "t", nil); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		s := all[0].TaskStates["t"]
		return s.State == "running" && s.Restarts == 1
	})
	types := eventTypes(one(t, a.Client, "again").TaskStates["t"])
	for _, want := range []string{"Signaling", "Restart Signaled", "Terminated", "Restarting", "Started"} {
		if !slices.Contains(types, want) {
			t.Errorf("no event %q in %v", want, types)
		}
	}
	err := a.Client.Allocations().Restart(alloc, "nobody", nil)
	wantText(t, err, "Could not find task runner for task: nobody")
}

func TestAllocStopReplaces(t *testing.T) {
	a, alloc := start(t, "moved", "exec sleep 1000", "")
	if _, err := a.Client.Allocations().Stop(alloc, nil); err != nil {
		t.Fatal(err)
	}
	all := devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return len(all) == 2 && slices.ContainsFunc(all, func(x *api.AllocationListStub) bool {
			return x.ID != alloc.ID && x.ClientStatus == api.AllocClientStatusRunning
		}) && slices.ContainsFunc(all, func(x *api.AllocationListStub) bool {
			return x.ID == alloc.ID && x.ClientStatus == api.AllocClientStatusComplete
		})
	})
	for _, x := range all {
		if x.ID == alloc.ID && x.DesiredDescription != "alloc is being migrated" {
			t.Errorf("old allocation: %q", x.DesiredDescription)
		}
	}
}

func TestStats(t *testing.T) {
	a, alloc := start(t, "stats", "exec sleep 1000", "")
	u, err := a.Client.Allocations().Stats(alloc, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := u.Tasks["t"]
	if task == nil || task.ResourceUsage.MemoryStats.RSS != 4096 || task.ResourceUsage.CpuStats.Percent != 1.5 || len(task.Pids) != 1 {
		t.Fatalf("got %+v", task)
	}
	if got := task.ResourceUsage.MemoryStats.Measured; !slices.Equal(got, []string{"RSS"}) {
		t.Errorf("measured %v", got)
	}
	if u.ResourceUsage.MemoryStats.RSS != 4096 || u.Timestamp == 0 {
		t.Errorf("sum %+v at %d", u.ResourceUsage.MemoryStats, u.Timestamp)
	}
}

func TestNode(t *testing.T) {
	a := devagenttest.Start(t)
	list, _, err := a.Client.Nodes().List(nil)
	if err != nil || len(list) != 1 || list[0].Status != "ready" {
		t.Fatalf("got %v, %v", list, err)
	}
	n, _, err := a.Client.Nodes().Info(list[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"driver.shelltest": "1", "driver.shelltest.kinds": "a,b", "driver.shelltest.size": "5MiB", "kernel.name": "linux",
	} {
		if n.Attributes[name] != want {
			t.Errorf("%s = %q, want %q", name, n.Attributes[name], want)
		}
	}
	d := n.Drivers["shelltest"]
	if d == nil || !d.Healthy || !d.Detected || d.HealthDescription != "Healthy" {
		t.Errorf("driver: %+v", d)
	}
	if n.NodeResources.Memory.MemoryMB < 100 || n.NodeResources.Cpu.CpuShares < 100 {
		t.Errorf("resources: %+v", n.NodeResources)
	}
	if leader, err := a.Client.Status().Leader(); err != nil || leader == "" {
		t.Errorf("leader %q, %v", leader, err)
	}
	if _, err := a.Client.Agent().Self(); err != nil {
		t.Errorf("self: %v", err)
	}
}

func TestPlanSaysAndStoresNothing(t *testing.T) {
	a := devagenttest.Start(t)
	job := parse(t, a.Client, shell("planned", "exec sleep 1000", ""))
	plan, _, err := a.Client.Jobs().Plan(job, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Diff.Type != "Added" || plan.Annotations.DesiredTGUpdates["g"].Place != 1 || len(plan.FailedTGAllocs) != 0 {
		t.Errorf("got %+v", plan)
	}
	memory := 1 << 30
	job.TaskGroups[0].Tasks[0].Resources.MemoryMB = &memory
	plan, _, err = a.Client.Jobs().Plan(job, false, nil)
	if err != nil || plan.FailedTGAllocs["g"] == nil || plan.FailedTGAllocs["g"].DimensionExhausted["memory"] != 1 {
		t.Errorf("got %+v, %v", plan, err)
	}
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}
