// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"bytes"
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

func TestExecWithTerminalAndResize(t *testing.T) {
	a, alloc := start(t, "tty", "exec sleep 1000", "")
	sizes := make(chan api.TerminalSize, 1)
	sizes <- api.TerminalSize{Height: 33, Width: 99}
	in, typing := io.Pipe()
	out := &watchedBuffer{want: "33 99", seen: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		code, err := a.Client.Allocations().Exec(t.Context(), alloc, "t", true,
			[]string{"sh", "-c", "until [ \"$(stty size)\" = '33 99' ]; do :; done; stty size; read x; echo got $x >&2; exit 5"}, in, out, io.Discard, sizes, nil)
		if code != 5 {
			err = errors.Join(err, fmt.Errorf("exit code %d", code))
		}
		done <- err
	}()
	<-out.seen
	if _, err := typing.Write([]byte("word\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// One stream, with the terminal's line ends, and what was typed echoed.
	if got := out.String(); !strings.Contains(got, "33 99\r\n") || !strings.Contains(got, "word\r\n") || !strings.Contains(got, "got word\r\n") {
		t.Errorf("got %q", got)
	}
}

// watchedBuffer closes seen when it holds the wanted text.
type watchedBuffer struct {
	bytes.Buffer
	want string
	seen chan struct{}
	done bool
}

func (b *watchedBuffer) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if !b.done && strings.Contains(b.String(), b.want) {
		b.done = true
		close(b.seen)
	}
	return n, err
}

func TestExecBinaryRoundTrip(t *testing.T) {
	a, alloc := start(t, "cat", "exec sleep 1000", "")
	blob := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0x80}, 200_000)
	var out bytes.Buffer
	code, err := a.Client.Allocations().Exec(t.Context(), alloc, "t", false, []string{"cat"}, bytes.NewReader(blob), &out, io.Discard, nil, nil)
	if err != nil || code != 0 || !bytes.Equal(out.Bytes(), blob) {
		t.Errorf("code %d, error %v, %d bytes of %d", code, err, out.Len(), len(blob))
	}
}

// NMD-21, and the refusals in Nomad's words.
func TestExecRefusals(t *testing.T) {
	a, alloc := start(t, "once", "exec sleep 1000", "")
	exec := func(alloc *api.Allocation, task string, command ...string) error {
		_, err := a.Client.Allocations().Exec(t.Context(), alloc, task, false, command, strings.NewReader(""), io.Discard, io.Discard, nil, nil)
		return err
	}
	unknown := *alloc
	unknown.ID = "00000000-0000-0000-0000-000000000000"
	for want, err := range map[string]error{
		`Unknown allocation "00000000-0000-0000-0000-000000000000"`: exec(&unknown, "t", "true"),
		`unknown task name "x"`:    exec(alloc, "x", "true"),
		`command is not present`:   exec(alloc, "t"),
		`no such file or director`: exec(alloc, "t", "/nonexistent/program"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, _, err := a.Client.Jobs().Deregister("once", false, nil); err != nil {
		t.Fatal(err)
	}
	// In a loop while the task stops: an error of a known kind, or a command that ran.
	for {
		err := exec(alloc, "t", "true")
		if err != nil && strings.Contains(err.Error(), `task "t" is not running.`) {
			break
		}
		if err != nil && !strings.Contains(err.Error(), "task is not running") && !strings.Contains(err.Error(), "task not found") {
			t.Fatalf("got %v", err)
		}
	}
}

func readLog(t *testing.T, a *devagenttest.Agent, alloc *api.Allocation, origin string, offset int64) string {
	t.Helper()
	// The reader closes it.
	cancel := make(chan struct{})
	frames, errs := a.Client.AllocFS().Logs(alloc, false, "t", "stdout", origin, offset, cancel, nil)
	r := api.NewFrameReader(frames, errs, cancel)
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogsWithOffsetAndFollow(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "go")
	a, alloc := start(t, "logs", "echo one; mkfifo "+fifo+"; read x < "+fifo+"; echo two; exec sleep 1000", "")

	cancel := make(chan struct{})
	frames, errs := a.Client.AllocFS().Logs(alloc, true, "t", "stdout", "start", 0, cancel, nil)
	next := func(want string) {
		t.Helper()
		text := ""
		for !strings.Contains(text, want) {
			select {
			case f := <-frames:
				text += string(f.Data)
				if f.File != "alloc/logs/t.stdout.0" || f.Offset == 0 {
					t.Errorf("frame of %q at %d", f.File, f.Offset)
				}
			case err := <-errs:
				t.Fatal(err)
			case <-time.After(30 * time.Second):
				t.Fatalf("no %q; got %q", want, text)
			}
		}
	}
	next("one\n")
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	next("two\n")
	close(cancel)

	for _, c := range []struct {
		origin string
		offset int64
		want   string
	}{{"start", 0, "one\ntwo\n"}, {"start", 4, "two\n"}, {"start", 100, ""}, {"end", 4, "two\n"}, {"end", 100, "one\ntwo\n"}, {"end", 0, ""}} {
		if got := readLog(t, a, alloc, c.origin, c.offset); got != c.want {
			t.Errorf("origin %s offset %d: got %q, want %q", c.origin, c.offset, got, c.want)
		}
	}
	plain := rawGet(t, a, "/v1/client/fs/logs/"+alloc.ID+"?task=t&type=stdout&plain=true")
	if plain.body != "one\ntwo\n" || plain.status != 200 {
		t.Errorf("plain: %+v", plain)
	}
	for query, want := range map[string]answer{
		"task=x&type=stdout":               {400, `unknown task name "x"`},
		"type=stdout":                      {400, "must provide task name"},
		"task=t&type=both":                 {400, "must provide log type (stdout/stderr)"},
		"task=t&type=stdout&origin=middle": {400, "origin must be start or end"},
	} {
		if got := rawGet(t, a, "/v1/client/fs/logs/"+alloc.ID+"?"+query); got != want {
			t.Errorf("%s: got %+v, want %+v", query, got, want)
		}
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

func TestVariablesWithCheckAndSet(t *testing.T) {
	a := devagenttest.Start(t)
	vars := a.Client.Variables()
	v, _, err := vars.Create(&api.Variable{Path: "botscreen/profiles/ada", Items: map[string]string{"k": "1"}}, nil)
	if err != nil || v.ModifyIndex == 0 || v.CreateTime == 0 {
		t.Fatalf("got %+v, %v", v, err)
	}
	var conflict api.ErrCASConflict
	if _, _, err := vars.CheckedCreate(&api.Variable{Path: v.Path, Items: map[string]string{"k": "x"}}, nil); !errors.As(err, &conflict) || conflict.Conflict.ModifyIndex != v.ModifyIndex {
		t.Errorf("create again: %v", err)
	}
	next := *v
	next.Items = map[string]string{"k": "2"}
	updated, _, err := vars.CheckedUpdate(&next, nil)
	if err != nil || updated.CreateIndex != v.CreateIndex || updated.ModifyIndex <= v.ModifyIndex {
		t.Errorf("update: %+v, %v", updated, err)
	}
	next.Items = map[string]string{"k": "3"}
	if _, _, err := vars.CheckedUpdate(&next, nil); !errors.As(err, &conflict) || conflict.Conflict.Items["k"] != "2" {
		t.Errorf("stale update: %v", err)
	}
	if _, err := vars.CheckedDelete(v.Path, v.ModifyIndex, nil); !errors.As(err, &conflict) {
		t.Errorf("stale delete: %v", err)
	}
	list, _, err := vars.PrefixList("botscreen/", nil)
	if err != nil || len(list) != 1 || list[0].Path != v.Path {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := vars.CheckedDelete(v.Path, updated.ModifyIndex, nil); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, _, err := vars.Read(v.Path, nil); !errors.Is(err, api.ErrVariablePathNotFound) {
		t.Errorf("read: %v", err)
	}
	if _, err := vars.Delete("nowhere", nil); err != nil {
		t.Errorf("delete nothing: %v", err)
	}
}

// Two writers with one index: one wins.
func TestCheckAndSetIsAtomic(t *testing.T) {
	a := devagenttest.Start(t)
	v, _, err := a.Client.Variables().Create(&api.Variable{Path: "p", Items: map[string]string{"k": "0"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan bool, 20)
	for i := range 20 {
		go func() {
			one := *v
			one.Items = map[string]string{"k": fmt.Sprint(i)}
			_, _, err := a.Client.Variables().CheckedUpdate(&one, nil)
			won <- err == nil
		}()
	}
	wins := 0
	for range 20 {
		if <-won {
			wins++
		}
	}
	if wins != 1 {
		t.Errorf("%d writers won", wins)
	}
}

func TestBadVariables(t *testing.T) {
	a := devagenttest.Start(t)
	for path, c := range map[string]struct{ body, want string }{
		"/v1/var/p":       {`{"Items":{}}`, "variable missing required Items object"},
		"/v1/var/p%20q":   {`{"Items":{"k":"v"}}`, `invalid path "p q"`},
		"/v1/var/nomad/x": {`{"Items":{"k":"v"}}`, `only paths at "nomad/jobs"`},
		"/v1/var/q":       {`{"Items":{"k":"` + strings.Repeat("v", 64<<10) + `"}}`, "variables are limited to 64KiB in total size"},
		"/v1/var/r":       {`{`, "unexpected EOF"},
		"/v1/var/s?cas=x": {`{"Items":{"k":"v"}}`, "can not parse cas"},
	} {
		if got := raw(t, a, http.MethodPut, path, c.body); got.status != 400 || !strings.Contains(got.body, c.want) {
			t.Errorf("%s: got %+v, want 400 %s", path, got, c.want)
		}
	}
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
