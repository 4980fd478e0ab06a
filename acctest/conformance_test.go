// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/conformance"
	"github.com/botscreen/botscreen/shared/screen"
)

// The whole checklist of Nomad's plugin protocol against the real driver with real
// desktops on the host.
func TestConformance(t *testing.T) {
	needDesktop(t)
	dir := shortDir(t)
	profiles := &atomic.Int64{}
	desk := func(more map[string]any) conformance.Config {
		config := conformance.Config{
			"profile": fmt.Sprintf("conf-%d", profiles.Add(1)), "isolation": "host", "geometry": "640x480",
			"min_free_memory_mb": 64, "start_timeout": "60s",
		}
		for name, value := range more {
			config[name] = value
		}
		return config
	}
	conformance.Run(t, conformance.Target{
		Binary: binary(t, "nomad-driver-botscreen"),
		Driver: "botscreen",
		PluginConfig: conformance.Config{
			"allow_unsandboxed_host": true, "state_dir": filepath.Join(dir, "state"), "run_dir": filepath.Join(dir, "run"), "displays": "21000-21099",
		},
		RejectedConfig: conformance.Config{"displays": "from here to there"},
		Runs: func(testing.TB) conformance.Config {
			// It blocks without a child: the suite compares the processes of a task.
			return desk(program("trap 'echo hung up' HUP; echo here I am; mkfifo $HOME/block; exec 3<>$HOME/block; while :; do read x <&3; done"))
		},
		Stubborn: func(testing.TB) conformance.Config {
			return desk(program("trap '' TERM INT HUP; echo here I am; while :; do sleep 1; done"))
		},
		LogText: "here I am",
		Signalled: func(t testing.TB, log func() string) {
			for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log(), "hung up"); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the program did not get the signal")
				}
			}
		},
		Fails: func(testing.TB) conformance.Config { return desk(map[string]any{"geometry": "0x0"}) },
		Descends: func(testing.TB) conformance.Config {
			return desk(program("setsid setsid sleep 600 & setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' & echo here I am"))
		},
		Instances: func(_ testing.TB, processes []conformance.Process) int {
			// The X server does not get the job's environment; the window manager does.
			return len(slices.DeleteFunc(processes, func(p conformance.Process) bool { return !strings.Contains(p.Command, "xfwm4") }))
		},
		Traces:      func(t testing.TB) []string { return traces(t, dir) },
		Forge:       forge,
		Shell:       []string{"/bin/sh", "-c"},
		User:        "nobody",
		EndsInOrder: true,
		StopTimeout: 8 * time.Second,
		Tasks:       6,
	})
}

// program is the configuration of a program on the desktop.
func program(script string) map[string]any {
	return map[string]any{"command": "sh", "args": []any{"-c", script}}
}

// shortDir is a directory that screens' uids may pass through, with a path short enough
// for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unmountBelow(dir)
		_ = os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// unmountBelow takes away what an agent mounted for its allocations: it keeps them until
// it collects the allocation, long after the test.
func unmountBelow(dir string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}

// hashes name the screens of this test, as the driver names their cgroups.
var hashes = func() (all []string) {
	for n := range 1000 {
		all = append(all, screen.ID{Namespace: "default", Profile: screen.Profile(fmt.Sprintf("conf-%d", n))}.Hash())
	}
	return all
}()

// traces are what a driver keeps while screens run, and must be gone after.
func traces(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		filepath.Join(dir, "run", "*"), filepath.Join(dir, "run", "node", "promises", "*"), filepath.Join(dir, "state", "runs", "*"),
		"/tmp/.X210[0-9][0-9]-lock", "/tmp/.X11-unix/X210[0-9][0-9]",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	for _, path := range screenGroups(t, "*") { // other tests have screens too
		hash, _, _ := strings.Cut(filepath.Base(path), "-")
		if slices.Contains(hashes, hash) {
			found = append(found, path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(dir)) {
			found = append(found, string(line))
		}
	}
	// Made with the first screen and kept: the node's locks.
	return slices.DeleteFunc(found, func(path string) bool { return path == filepath.Join(dir, "run", "node") })
}

// forge gives the handle the pid of somebody else's process.
func forge(t testing.TB, handle *nomadplugin.TaskHandle, pid int) *nomadplugin.TaskHandle {
	t.Helper()
	var state map[string]any
	if err := json.Unmarshal(handle.GetDriverState(), &state); err != nil {
		t.Fatal(err)
	}
	state["sandbox"].(map[string]any)["session"].(map[string]any)["pid"] = pid
	forged, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	handle.DriverState = forged
	return handle
}
