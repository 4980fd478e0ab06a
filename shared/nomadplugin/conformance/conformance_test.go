// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/conformance"
)

// The test binary is the plugin and the parent of the plugin's tasks as well.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == shimFlag:
		if err := runShim(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == pluginFlag:
		logger := nomadplugin.NewLogger("shell")
		nomadplugin.Serve(newShellDriver(logger), logger)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const pluginFlag = "conformance-plugin"

func TestShellDriver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "np-state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	command := func(text string, args ...any) conformance.Config {
		return conformance.Config{"command": fmt.Sprintf(text, args...)}
	}
	var runs atomic.Int32
	const ready = "echo ready; trap 'echo hangup' HUP; "
	conformance.Run(t, conformance.Target{
		Binary: self, Args: []string{pluginFlag}, Driver: "shell",
		PluginConfig:   conformance.Config{"state_dir": state},
		RejectedConfig: conformance.Config{"limit": 0},
		Runs: func(testing.TB) conformance.Config {
			config := command(ready + "while :; do sleep 300 & wait $!; done")
			config["print"] = runs.Add(1)%10 == 1
			return config
		},
		Exits: func(_ testing.TB, code int, after time.Duration) conformance.Config {
			return command("sleep %.1f; exit %d", after.Seconds(), code)
		},
		Stubborn: func(testing.TB) conformance.Config {
			return command("trap '' TERM; echo ready; while :; do sleep 0.1; done")
		},
		Fails: func(testing.TB) conformance.Config { return command("a\x00b") },
		Descends: func(testing.TB) conformance.Config {
			return command("setsid sh -c 'trap \"\" TERM HUP; setsid sleep 300 & wait' & (sleep 300 &) ; while :; do sleep 0.1; done")
		},
		Instances: func(_ testing.TB, processes []conformance.Process) (n int) {
			// A shell that has just forked its sleep is there twice until that is executed.
			leads := map[int]bool{}
			for _, process := range processes {
				if strings.Contains(process.Command, "while :") {
					leads[process.PID] = true
				}
			}
			for _, process := range processes {
				if leads[process.PID] && !leads[process.Parent] {
					n++
				}
			}
			return n
		},
		Traces: func(t testing.TB) (traces []string) {
			err := filepath.Walk(state, func(path string, _ os.FileInfo, err error) error {
				traces = append(traces, path)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return traces
		},
		Degrade: func(t testing.TB) func() {
			path := filepath.Join(state, "ill")
			if err := os.WriteFile(path, []byte("tests want it so"), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(path) }
		},
		Forge: func(t testing.TB, handle *nomadplugin.TaskHandle, pid int) *nomadplugin.TaskHandle {
			var identity shimIdentity
			if err := json.Unmarshal(handle.DriverState, &identity); err != nil {
				t.Fatal(err)
			}
			identity.Shim, identity.Lead = pid, pid
			state, err := json.Marshal(identity)
			if err != nil {
				t.Fatal(err)
			}
			handle.DriverState = state
			return handle
		},
		Signalled: func(t testing.TB, log func() string) {
			for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log(), "hangup"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("no hangup in the log")
				}
			}
		},
		Shell: []string{"/bin/sh", "-c"}, LogText: "ready", User: "daemon", Tasks: 50,
		LaunchLimit: 2 * time.Second,
	})
}
