// SPDX-License-Identifier: MPL-2.0

// Package devagenttest starts an embedded agent with a small driver of its own, for
// tests of what talks to an agent. The test binary is the plugin and the log
// collector too: call Main from TestMain.
package devagenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/logmon"
	"github.com/botscreen/botscreen/shared/devagent/node"
	"github.com/botscreen/botscreen/shared/devagent/taskdir"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// PluginName is the file of the test driver.
const PluginName = "nomad-driver-shelltest"

// Main runs the tests, or what the test binary was executed as.
func Main(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == PluginName:
		// Under nohup SIGHUP is ignored, and would be by the tasks. What is handled here they get
		// with its default.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		log := nomadplugin.NewLogger(PluginName)
		nomadplugin.Serve(newDriver(log), log)
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "logmon":
		os.Exit(logmon.Main(os.Args[2:]))
	case len(os.Args) == 3 && os.Args[1] == agentCommand:
		if err := agentMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The race detector lets a process sleep for a second at its end: not those that the
	// tests start.
	_ = os.Setenv("GORACE", quickEnd)
	os.Exit(m.Run())
}

const quickEnd = "atexit_sleep_ms=0"

// Agent is an agent that runs in the test's process.
type Agent struct {
	*devagent.Agent
	// Client talks to it with its token.
	Client *api.Client
	// DriverDir is the test driver's; a file "ill" in it makes the driver ill.
	DriverDir string

	stop  context.CancelFunc
	done  chan error
	ended sync.Once
}

// Dirs are where an agent lives. They may be used by one agent after another.
type Dirs struct{ Data, Plugins, Driver string }

// NewDirs makes the directories and puts the test driver into the plugin
// directory.
func NewDirs(t testing.TB) Dirs {
	t.Helper()
	base, err := os.MkdirTemp("", "devagent")
	if err != nil {
		t.Fatal(err)
	}
	d := Dirs{Data: filepath.Join(base, "data"), Plugins: filepath.Join(base, "plugins"), Driver: filepath.Join(base, "driver")}
	for _, dir := range []string{d.Plugins, d.Driver} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(d.Plugins, PluginName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		allocs, _ := os.ReadDir(filepath.Join(d.Data, "alloc"))
		for _, a := range allocs {
			_ = taskdir.Alloc{Dir: filepath.Join(d.Data, "alloc", a.Name())}.Remove()
		}
		endPlugin(filepath.Join(d.Data, "plugins", PluginName+".json"))
		_ = os.RemoveAll(base)
	})
	return d
}

// endPlugin ends the plugin that outlived an agent which was killed.
func endPlugin(record string) {
	text, err := os.ReadFile(record)
	if err != nil {
		return
	}
	var r host.Reattach
	if json.Unmarshal(text, &r) == nil && startOf(r.PID) == strconv.FormatUint(r.StartTime, 10) {
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
	}
}

// Config is that of an agent with the test driver.
func (d Dirs) Config(t testing.TB) devagent.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return devagent.Config{
		DataDir: d.Data, Bind: "127.0.0.1:0", PluginDir: d.Plugins,
		Plugins: []drivers.Block{{Name: PluginName, Config: map[string]any{"dir": d.Driver}}},
		Node:    node.Config{Datacenter: "dc1", Name: "test", Meta: map[string]string{"rack": "r1"}},
		Logmon:  logmonCommand(self),
		Log:     hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Info}),
	}
}

// logmonCommand keeps the setting of Main, which a collector's environment has not.
func logmonCommand(self string) []string {
	return []string{"/usr/bin/env", "GORACE=" + quickEnd, self, "logmon"}
}

// testWriter writes an agent's log into the test's.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Logf("%s", p)
	return len(p), nil
}

// Start runs an agent until the end of the test, and stops its jobs then.
func Start(t testing.TB) *Agent {
	t.Helper()
	a := StartIn(t, NewDirs(t))
	t.Cleanup(func() { a.Purge(t) })
	return a
}

// StartIn runs an agent in existing directories until the end of the test. Its tasks
// outlive it, as with every agent.
func StartIn(t testing.TB, d Dirs) *Agent {
	t.Helper()
	a, err := devagent.New(t.Context(), d.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out := &Agent{Agent: a, DriverDir: d.Driver, stop: stop, done: make(chan error, 1)}
	go func() { out.done <- a.Run(ctx) }()
	t.Cleanup(out.Stop)
	select {
	case <-a.Ready():
	case err := <-out.done:
		t.Fatalf("the agent ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the agent is not ready")
	}
	token, err := devagent.ReadToken(a.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	out.Client, err = api.NewClient(&api.Config{Address: "http://" + a.Addr(), SecretID: token})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Stop ends the agent and leaves its tasks running. It may be called again.
func (a *Agent) Stop() {
	a.ended.Do(func() {
		a.stop()
		if err := <-a.done; err != nil {
			panic(err)
		}
	})
}

// Purge stops every job and waits until nothing runs.
func (a *Agent) Purge(t testing.TB) {
	t.Helper()
	jobs, _, err := a.Client.Jobs().List(nil)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if _, _, err := a.Client.Jobs().Deregister(j.ID, true, nil); err != nil {
			t.Errorf("purge %s: %v", j.ID, err)
		}
	}
	AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		for _, one := range all {
			if one.ClientStatus == api.AllocClientStatusRunning || one.ClientStatus == api.AllocClientStatusPending {
				return false
			}
		}
		return true
	})
}

// AwaitAllocs waits, by blocking queries, until the allocations are as wanted.
func AwaitAllocs(t testing.TB, c *api.Client, ok func([]*api.AllocationListStub) bool) []*api.AllocationListStub {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	q := &api.QueryOptions{WaitTime: 10 * time.Second, Params: map[string]string{"task_states": "true"}}
	for {
		all, meta, err := c.Allocations().List(q)
		if err != nil {
			t.Fatal(err)
		}
		if ok(all) {
			return all
		}
		if time.Now().After(deadline) {
			for _, one := range all {
				t.Logf("%s %s desired %s client %s (%s)", one.ID, one.Name, one.DesiredStatus, one.ClientStatus, one.ClientDescription)
				for name, s := range one.TaskStates {
					for _, e := range s.Events {
						t.Logf("  %s %s: %s", name, e.Type, e.DisplayMessage)
					}
				}
			}
			t.Fatal("the allocations do not become as wanted")
		}
		q.WaitIndex = meta.LastIndex
	}
}
