// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/host"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// The test binary is the driver's binary too: screens of these tests run it again as
// supervisor, session and probe, with the race detector.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervise":
			os.Exit(supervise.Main())
		case "session":
			os.Exit(session.Main(os.Args[3]))
		case desktop.FenceProbeCommand:
			os.Exit(desktop.FenceProbeMain(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// node is a driver's view of a node with directories, displays and uids of its own.
type node struct {
	t        *testing.T
	dir      string
	settings task.Settings
	environ  []string
	*task.Manager
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: every screen gets a uid of its own")
	}
	for _, program := range []string{"Xvnc", "xfwm4", "xfce4-panel", "xfdesktop", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run `make deps`", program)
		}
	}
	dir, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // screens' uids pass through
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	band, err := display.ParseBand("20000-20099") // nobody else's
	if err != nil {
		t.Fatal(err)
	}
	first := 200_000 + uint32(rand.IntN(90_000))*10
	n := &node{t: t, dir: dir, settings: task.Settings{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: executable,
		AllowHost: true, Order: []screen.Isolation{screen.Docker}, Band: band,
		FirstUID: first, LastUID: first + 400,
		Accounts: task.AccountPolicy{MinUID: 1000, DeniedGroups: []string{"docker"}},
		Exec:     screen.ExecPolicy{Shell: true, Role: screen.RoleOperator},
	}}
	n.restart()
	return n
}

// restart is a new driver process on the same node, as far as its state goes.
func (n *node) restart() {
	n.t.Helper()
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		n.t.Logf("screens of this test get no cgroup: %v", err)
		groups = nil
	}
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: testWriter{n.t}})
	n.Manager = task.New(n.settings, []isolation.Boundary{&host.Boundary{Cgroups: groups}}, n.environ, log)
}

// recovered restarts the driver and gives it the task back that it knew.
func (n *node) recovered(id task.ID, state []byte) *task.Task {
	n.t.Helper()
	n.restart()
	if err := n.Recover(n.t.Context(), id, state); err != nil {
		n.t.Fatal(err)
	}
	t, err := n.Get(id)
	if err != nil {
		n.t.Fatal(err)
	}
	return t
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	defer func() { _ = recover() }() // a line after the test's end is no failure
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// request asks for a small screen of the profile.
func (n *node) request(profile string) task.Request {
	config := screen.Defaults()
	config.Profile, config.Isolation, config.Geometry, config.StartTimeout = profile, "host", "800x600", "60s"
	config.MinFreeMemoryMB = 64
	spec, err := config.Validate()
	if err != nil {
		n.t.Fatal(err)
	}
	id := fmt.Sprintf("alloc-%s/%s/%08x", profile, profile, rand.Uint32())
	return task.Request{
		TaskID: task.ID(id), AllocID: "alloc-" + profile, TaskName: profile, JobID: "job", Namespace: "default",
		Spec: spec, AllocDir: n.dir, StdoutPath: os.DevNull, StderrPath: os.DevNull,
		Limits: cgroup.Limits{PidsMax: 2048},
	}
}

// start brings the screen up and ends it with the test.
func (n *node) start(request task.Request) *task.Task {
	n.t.Helper()
	t, err := n.Start(n.t.Context(), request)
	if err != nil {
		n.t.Fatalf("start %s: %v", request.Spec.Profile, err)
	}
	n.endWithTest(t)
	return t
}

func (n *node) endWithTest(t *task.Task) {
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = t.Destroy(ctx, true)
	})
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited 30 s for %s", what)
	}
}

// xserver is the screen's Xvnc, found by the socket it was told to bind.
func xserver(t *testing.T, v task.View) process.Identity {
	t.Helper()
	pids, err := process.Descendants(v.SessionPID)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if words := commandLine(pid); len(words) > 0 && filepath.Base(words[0]) == "Xvnc" {
			id, err := process.Observe(pid)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	t.Fatalf("no Xvnc below session %d", v.SessionPID)
	return process.Identity{}
}

func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// nothingLeft checks that no trace of the run remains but the profile's home, lease and
// records.
func (n *node) nothingLeft(v task.View) {
	n.t.Helper()
	for _, uid := range []uint32{v.Account.UID, v.SupervisorAccount} {
		if pids := processesOf(uid); len(pids) > 0 {
			for _, pid := range pids {
				n.t.Errorf("uid %d still has pid %d: %v", uid, pid, commandLine(pid))
			}
		}
	}
	for _, path := range []string{filepath.Dir(v.OperatorSocket), fmt.Sprintf("/tmp/.X%d-lock", v.Display), fmt.Sprintf("/tmp/.X11-unix/X%d", v.Display)} {
		if _, err := os.Lstat(path); err == nil {
			n.t.Errorf("%s is left", path)
		}
	}
	if runs, _ := os.ReadDir(filepath.Join(n.settings.StateDir, "runs")); len(runs) > 0 {
		n.t.Errorf("run records left: %v", runs)
	}
	for _, tree := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} { // cgroup v1, v2
		groups, _ := filepath.Glob(tree + "/botscreen/" + filepath.Base(filepath.Dir(v.OperatorSocket)) + "-" + v.Instance[:8])
		if len(groups) > 0 {
			n.t.Errorf("cgroups left: %v", groups)
		}
	}
}

func processesOf(uid uint32) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil {
			continue
		}
		// A zombie waits for init to collect it; nothing of it runs.
		zombie := strings.HasPrefix(statusField(pid, "State"), "Z")
		if ids := statusField(pid, "Uid"); strings.HasPrefix(ids, fmt.Sprintf("%d\t", uid)) && !zombie {
			found = append(found, pid)
		}
	}
	return found
}

func statusField(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":\t"); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}

// run executes a shell script inside the session.
func run(t *testing.T, k *task.Task, script string) (control.ExecResult, string) {
	t.Helper()
	var out strings.Builder
	result, err := k.Exec(t.Context(), control.ExecRequest{Argv: []string{"/bin/sh", "-c", script}}, strings.NewReader(""), &out, &out, nil)
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	return result, out.String()
}

func client(v task.View) *control.Client { return control.NewClient(control.Unix(v.OperatorSocket)) }
