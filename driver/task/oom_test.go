// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/driver/task/tasktest"
	"github.com/botscreen/botscreen/shared/control"
)

// score is what the kernel goes by when it chooses what to end.
func score(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Issue 7: what a command started goes first, then the parts of the desktop, and at last
// the X server and the session, whatever the agent's own score is.
func TestOOMOrder(t *testing.T) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("77"), 0); err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) }()
	n := newNode(t)
	k := n.start(n.request("scored"))
	v := k.View()
	for _, pid := range []int{v.SessionPID, xserver(t, v).PID} {
		if got := score(t, pid); got != "0" {
			t.Errorf("%v has %s", commandLine(pid), got)
		}
	}
	if got := score(t, v.SupervisorPID); got != "0" && got != "-500" { // as far as this test may promise it
		t.Errorf("the supervisor has %s", got)
	}
	parts := 0
	for _, pid := range processesOf(v.Account.UID) {
		switch words := commandLine(pid); {
		case len(words) > 0 && strings.HasPrefix(filepath.Base(words[0]), "xf"), len(words) > 0 && filepath.Base(words[0]) == "dbus-daemon":
			parts++
			if got := score(t, pid); got != "200" {
				t.Errorf("%v has %s", words, got)
			}
		}
	}
	if parts < 4 {
		t.Errorf("%d parts of a desktop", parts)
	}
	if _, out := run(t, k, "(cat /proc/self/oom_score_adj)"); out != "500\n" {
		t.Errorf("what a command started has %q", out)
	}
}

// Issue 7, N2: a program that the kernel ends for memory is in the events, by that word;
// the desktop beside it goes on.
func TestOOMKillIsTold(t *testing.T) {
	n := newNode(t)
	if _, err := exec.LookPath("tail"); err != nil {
		t.Skip(err)
	}
	request := n.request("gluttonous")
	request.Limits.MemoryBytes = 300 << 20
	k := n.start(request)
	needLimit(t, k)
	x := xserver(t, k.View())
	result, out := run(t, k, "head -c 500M /dev/zero | tail -n 1 | wc -c")
	t.Logf("the program ended with %d: %s", result.ExitCode, out)
	event := tasktest.AwaitEvent(t.Context(), t, n.Manager, "Out of memory: the kernel ended")
	if event.Annotations["botscreen.event"] != string(control.EventMemory) || event.Annotations["botscreen.state"] != "ready" {
		t.Errorf("event %+v", event)
	}
	if !strings.Contains(event.Message, "the task's limit is 300 MB") {
		t.Errorf("event %+v", event)
	}
	if xserver(t, k.View()) != x {
		t.Error("the X server was ended")
	}
	if err := k.Stop(t.Context(), 10*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := k.Exit(); exit.Code != 0 || exit.OOM {
		t.Errorf("a screen that went on was stopped, and the exit is %+v", exit)
	}
}

// Issue 7, N2: the end of a screen whose session the kernel took is told as out of memory,
// to Nomad and in words.
func TestOOMEndIsTold(t *testing.T) {
	n := newNode(t)
	request := n.request("starved")
	request.Limits.MemoryBytes = 300 << 20
	k := n.start(request)
	needLimit(t, k)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := tasktest.StarveSession(ctx, t, k); err != nil {
		t.Skip(err)
	}
}

// needLimit skips a test where this machine gives a screen no limit on memory, and says why.
func needLimit(t *testing.T, k *task.Task) {
	t.Helper()
	status, err := client(k.View()).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range status.Warnings {
		if strings.Contains(w, "no limit on memory") {
			t.Skip(w)
		}
	}
}
