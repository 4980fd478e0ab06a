// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// ticking is a task that writes its pid once and then a line per tick.
const ticking = "echo pid $$; i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.05; done"

// pidOf reads the pid that a ticking task wrote.
func pidOf(t *testing.T, c *api.Client, alloc string) int {
	t.Helper()
	var pid int
	await(t, func() bool {
		first, _, _ := strings.Cut(logOf(t, c, alloc), "\n")
		_, err := fmt.Sscanf(first, "pid %d", &pid)
		return err == nil
	})
	return pid
}

func logOf(t *testing.T, c *api.Client, alloc string) string {
	t.Helper()
	cancel := make(chan struct{})
	frames, errs := c.AllocFS().Logs(&api.Allocation{ID: alloc}, false, "t", "stdout", "start", 0, cancel, nil)
	r := api.NewFrameReader(frames, errs, cancel)
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func tickOf(t *testing.T, c *api.Client, alloc string) int {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(logOf(t, c, alloc)), "\n")
	var n int
	_, _ = fmt.Sscanf(lines[len(lines)-1], "tick %d", &n)
	return n
}

func threeRun(all []*api.AllocationListStub) bool {
	n := 0
	for _, a := range all {
		if a.ClientStatus == api.AllocClientStatusRunning && a.TaskStates["t"].State == "running" {
			n++
		}
	}
	return n == 3
}

// Three tasks run through a clean stop, a kill -9 and another clean stop of the
// agent: the same processes, the same allocations, logs and events go on, and one log
// collector per task.
func TestAgentRestartKeepsTasks(t *testing.T) {
	d := devagenttest.NewDirs(t)
	p := devagenttest.StartProcess(t, d)
	for i := range 3 {
		register(t, p.Client, shell(fmt.Sprintf("job-%d", i), ticking, ""))
	}
	all := devagenttest.AwaitAllocs(t, p.Client, threeRun)
	pids, starts := map[string]int{}, map[string]string{}
	for _, a := range all {
		pids[a.ID] = pidOf(t, p.Client, a.ID)
		starts[a.ID] = devagenttest.StartTime(pids[a.ID])
	}
	index := all[0].ModifyIndex
	for round, end := range []func(){p.Terminate, nil, nil} {
		if end == nil {
			end = p.Kill
			if round == 2 {
				end = p.Terminate
			}
		}
		end()
		p = devagenttest.StartProcess(t, d)
		now := devagenttest.AwaitAllocs(t, p.Client, threeRun)
		if len(now) != 3 {
			t.Fatalf("round %d: %d allocations", round, len(now))
		}
		for _, a := range now {
			pid := pids[a.ID]
			if pid == 0 || devagenttest.StartTime(pid) != starts[a.ID] {
				t.Errorf("round %d: task of %s is another process", round, a.ID)
			}
			before := tickOf(t, p.Client, a.ID)
			await(t, func() bool { return tickOf(t, p.Client, a.ID) > before+2 })
			if s := a.TaskStates["t"]; s.Restarts != 0 || s.Failed {
				t.Errorf("round %d: state %+v", round, s)
			}
			if n := collectors(t, d, a.ID); n != 1 {
				t.Errorf("round %d: %d log collectors for %s", round, n, a.ID)
			}
			var out bytes.Buffer
			code, err := p.Client.Allocations().Exec(t.Context(), &api.Allocation{ID: a.ID}, "t", false, []string{"echo", "in"}, strings.NewReader(""), &out, io.Discard, nil, nil)
			if err != nil || code != 0 || out.String() != "in\n" {
				t.Errorf("round %d: exec: %d, %v, %q", round, code, err, out.String())
			}
		}
	}
	if got := one(t, p.Client, "job-0"); got.ModifyIndex < index {
		t.Errorf("index %d went back to %d", index, got.ModifyIndex)
	}
	stopAll(t, p.Client)
	for _, pid := range pids {
		devagenttest.AwaitGone(t, pid)
	}
	for _, a := range all {
		await(t, func() bool { return collectors(t, d, a.ID) == 0 })
	}
}

// collectors counts the log collectors of an allocation.
func collectors(t *testing.T, d devagenttest.Dirs, alloc string) int {
	t.Helper()
	n := 0
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		text, _ := os.ReadFile(path)
		if args := strings.Split(string(text), "\x00"); len(args) > 3 && args[1] == "logmon" && strings.Contains(args[3], alloc) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if devagenttest.StartTime(pid) != "" {
				n++
			}
		}
	}
	return n
}

func stopAll(t *testing.T, c *api.Client) {
	t.Helper()
	jobs, _, err := c.Jobs().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if _, _, err := c.Jobs().Deregister(j.ID, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	devagenttest.AwaitAllocs(t, c, func(all []*api.AllocationListStub) bool {
		return !slices.ContainsFunc(all, func(a *api.AllocationListStub) bool {
			return a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
		})
	})
}

// N1: the plugin dies, the task does not, and what is asked of it afterwards works.
func TestPluginDeathKeepsTasks(t *testing.T) {
	a, alloc := start(t, "plug", ticking, "")
	pid := pidOf(t, a.Client, alloc.ID)
	started := devagenttest.StartTime(pid)
	plugin := pluginPID(t, a)
	if err := unix.Kill(plugin, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitGone(t, plugin)
	await(t, func() bool { return pluginPID(t, a) != plugin })
	before := tickOf(t, a.Client, alloc.ID)
	await(t, func() bool { return tickOf(t, a.Client, alloc.ID) > before+2 })
	await(t, func() bool {
		code, err := a.Client.Allocations().Exec(t.Context(), alloc, "t", false, []string{"true"}, strings.NewReader(""), io.Discard, io.Discard, nil, nil)
		return err == nil && code == 0
	})
	if devagenttest.StartTime(pid) != started {
		t.Error("the task is another process")
	}
	if s := one(t, a.Client, "plug").TaskStates["t"]; s.Restarts != 0 || s.State != "running" {
		t.Errorf("state %+v", s)
	}
}

// pluginPID reads the record of the plugin's process.
func pluginPID(t *testing.T, a *devagenttest.Agent) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.DataDir(), "plugins", devagenttest.PluginName+".json"))
	if err != nil {
		return 0
	}
	var r struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.PID
}

// A task that ended while no agent ran is told of with its true exit code, and the
// job's policy is followed. NMD-03: nothing that ended is started again by itself.
func TestTaskEndsWhileNoAgentRuns(t *testing.T) {
	d := devagenttest.NewDirs(t)
	p := devagenttest.StartProcess(t, d)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	job := strings.Replace(shell("batch", "echo pid $$; read x < "+gate+"; exit 0", ""), `"service"`, `"batch"`, 1)
	register(t, p.Client, job)
	all := devagenttest.AwaitAllocs(t, p.Client, running("batch"))
	pid := pidOf(t, p.Client, all[0].ID)
	p.Kill()
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitGone(t, pid)
	for range 2 {
		p = devagenttest.StartProcess(t, d)
		all = devagenttest.AwaitAllocs(t, p.Client, func(all []*api.AllocationListStub) bool {
			return all[0].ClientStatus == api.AllocClientStatusComplete
		})
		if len(all) != 1 || all[0].TaskStates["t"].Failed || all[0].TaskStates["t"].Restarts != 0 {
			t.Fatalf("got %d allocations, state %+v", len(all), all[0].TaskStates["t"])
		}
		p.Terminate()
	}
}

// A job stopped while the agent's client was busy elsewhere, or registered just
// before a kill, is taken up by the next agent.
func TestRegisteredBeforeKillRunsAfterwards(t *testing.T) {
	d := devagenttest.NewDirs(t)
	p := devagenttest.StartProcess(t, d)
	register(t, p.Client, shell("early", "exec sleep 1000", ""))
	p.Kill()
	p = devagenttest.StartProcess(t, d)
	all := devagenttest.AwaitAllocs(t, p.Client, running("early"))
	if len(all) != 1 {
		t.Errorf("%d allocations", len(all))
	}
	stopAll(t, p.Client)
}

// A task that cannot be found again is started anew, and says so.
func TestTaskLostWhileNoAgentRuns(t *testing.T) {
	d := devagenttest.NewDirs(t)
	p := devagenttest.StartProcess(t, d)
	register(t, p.Client, shell("lost", ticking, ""))
	all := devagenttest.AwaitAllocs(t, p.Client, running("lost"))
	pid := pidOf(t, p.Client, all[0].ID)
	p.Terminate()
	// The whole session, wrapper included: nobody is left to tell how it ended.
	if err := unix.Kill(-sessionOf(t, pid), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitGone(t, pid)
	p = devagenttest.StartProcess(t, d)
	devagenttest.AwaitAllocs(t, p.Client, func(all []*api.AllocationListStub) bool {
		s := all[0].TaskStates["t"]
		return s.State == "running" && slices.Contains(eventTypes(s), "Failed Restoring Task") && slices.Index(eventTypes(s)[slices.Index(eventTypes(s), "Failed Restoring Task"):], "Started") > 0
	})
	stopAll(t, p.Client)
}

// Issue 7: an agent that is killed after it has told that an allocation ended, and before it
// has taken everything away, leaves the rest to the next one. The log collector holds it up
// here: it is stopped, and waited for.
func TestKilledWhileTidying(t *testing.T) {
	d := devagenttest.NewDirs(t)
	p := devagenttest.StartProcess(t, d)
	register(t, p.Client, shell("tidy", ticking, ""))
	alloc := devagenttest.AwaitAllocs(t, p.Client, running("tidy"))[0].ID
	await(t, func() bool { return collectors(t, d, alloc) == 1 })
	pid := collectorOf(t, d, alloc)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopAll(t, p.Client)
	p.Kill()
	if secretsOf(t, d, alloc) == 0 && os.Geteuid() == 0 {
		t.Skip("the agent had the five seconds that it waits for a collector")
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p = devagenttest.StartProcess(t, d)
	await(t, func() bool { return collectors(t, d, alloc) == 0 && secretsOf(t, d, alloc) == 0 })
	if got := one(t, p.Client, "tidy"); got.ClientStatus != api.AllocClientStatusComplete {
		t.Errorf("the allocation is %s", got.ClientStatus)
	}
}

// collectorOf is the pid that an allocation's record names.
func collectorOf(t *testing.T, d devagenttest.Dirs, alloc string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.Data, "client", alloc+".json"))
	var tasks map[string]struct {
		Logmon struct {
			PID int `json:"pid"`
		} `json:"logmon"`
	}
	if err == nil {
		err = json.Unmarshal(text, &tasks)
	}
	if err != nil || tasks["t"].Logmon.PID <= 0 {
		t.Fatalf("no collector in %s: %v", text, err)
	}
	return tasks["t"].Logmon.PID
}

// secretsOf counts what is mounted below an allocation's directory.
func secretsOf(t *testing.T, d devagenttest.Dirs, alloc string) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(mounts), filepath.Join(d.Data, "alloc", alloc)+"/")
}

func sessionOf(t *testing.T, pid int) int {
	t.Helper()
	sid, err := unix.Getsid(pid)
	if err != nil {
		t.Fatal(err)
	}
	return sid
}

// At the end of an agent nothing of its own is left: no goroutine waits for minutes.
func TestStopIsQuick(t *testing.T) {
	a, _ := start(t, "quick", "exec sleep 1000", "")
	go func() {
		_, _, _ = a.Client.Jobs().List(&api.QueryOptions{WaitIndex: 1 << 40, WaitTime: 5 * time.Minute})
	}()
	begin := time.Now()
	// A new agent afterwards, for the clean-up.
	d := devagenttest.Dirs{Data: a.DataDir(), Plugins: filepath.Join(filepath.Dir(a.DataDir()), "plugins"), Driver: a.DriverDir}
	a.Stop()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
	devagenttest.StartIn(t, d).Purge(t)
}
