// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/driver/task/tasktest"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// frozenScreen starts a screen that freezes and leaves it alone until it has.
func frozenScreen(t *testing.T, n *node, profile string) *task.Task {
	t.Helper()
	request := n.request(profile)
	request.Spec.Idle = screen.IdlePolicy{After: time.Second, Action: screen.IdleFreeze}
	k := n.start(request)
	if status, err := client(k.View()).Status(t.Context()); err == nil {
		for _, w := range status.Warnings {
			if strings.Contains(w, "cannot be had on this node") {
				t.Skip(w)
			}
		}
	}
	tasktest.AwaitEvent(t.Context(), t, n.Manager, "Frozen: not used for 1s")
	awaitFrozen(t, k)
	return k
}

func awaitFrozen(t *testing.T, k *task.Task) {
	t.Helper()
	for event, err := range client(k.View()).Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Name == control.EventFrozen {
			break
		}
	}
	if !standsStill(t, xserver(t, k.View()).PID) {
		t.Error("the X server is not frozen")
	}
}

// standsStill reports whether the kernel's freezer has the process. A frozen one stops
// wherever it waits, so what counts is the freezer's word.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	for _, look := range []struct{ controller, file, word string }{
		{"freezer", "freezer.state", "FROZEN"}, {"", "cgroup.events", "frozen 1"},
	} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 || parts[1] != look.controller {
				continue
			}
			for _, mount := range []string{"/sys/fs/cgroup/" + look.controller, "/sys/fs/cgroup"} {
				state, err := os.ReadFile(mount + parts[2] + "/" + look.file)
				if err == nil && strings.Contains(string(state), look.word) {
					return true
				}
			}
		}
	}
	return false
}

// I1, I3, issue 7: an unused desktop is frozen with its windows, status and thumbnails let
// it be, the next use thaws the same X server, ten at once do so once, and soon.
func TestI1FreezeAndThaw(t *testing.T) {
	n := newNode(t)
	k := frozenScreen(t, n, "icy")
	v := k.View()
	x := xserver(t, v)
	c := client(v)
	if status, err := c.Status(t.Context()); err != nil || status.State != screen.Frozen {
		t.Fatalf("%+v, %v", status, err)
	}
	if _, err := c.Screenshot(t.Context(), control.ScreenshotRequest{Thumbnail: true}); err == nil || !strings.Contains(err.Error(), "frozen") {
		t.Errorf("a thumbnail: %v", err)
	}
	var all sync.WaitGroup
	began := time.Now()
	for range 10 {
		all.Go(func() {
			if err := c.Wake(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := c.Screenshot(t.Context(), control.ScreenshotRequest{}); err != nil {
		t.Error(err)
	}
	t.Logf("thaw by ten at once, and a picture, took %s", time.Since(began))
	if xserver(t, v) != x {
		t.Error("another X server")
	}
	event := tasktest.AwaitEvent(t.Context(), t, n.Manager, "it was frozen")
	if !strings.HasPrefix(event.Message, "Desktop woken after 0.") || event.Annotations["botscreen.state"] != "ready" {
		t.Errorf("event %+v", event)
	}
	tasktest.AwaitEvent(t.Context(), t, n.Manager, "Frozen: not used for 1s") // and again
}

// I2, L7: a takeover thaws the desktop before hands change, and under a person it stays so.
func TestI2TakeoverThaws(t *testing.T) {
	n := newNode(t)
	k := frozenScreen(t, n, "taken")
	c := client(k.View())
	if _, err := c.Take(t.Context(), control.TakeRequest{Viewer: "ann"}); err != nil {
		t.Fatal(err)
	}
	if status, err := c.Status(t.Context()); err != nil || status.State != screen.Ready || status.Lease.Holder != "human" {
		t.Errorf("%+v, %v", status, err)
	}
	if err := c.Sleep(t.Context()); err == nil {
		t.Error("a held screen was frozen")
	}
	if _, err := c.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"}); err != nil {
		t.Error(err)
	}
}

// S11, P4: a frozen desktop outlives its supervisor and its driver: the next ones find it,
// leave it frozen and thaw it at its next use.
func TestS11FrozenIsAdopted(t *testing.T) {
	n := newNode(t)
	k := frozenScreen(t, n, "glacier")
	v := k.View()
	x := xserver(t, v)
	if err := syscall.Kill(v.SupervisorPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tasktest.AwaitEvent(t.Context(), t, n.Manager, "Desktop adopted by a new supervisor")
	tasktest.AwaitEvent(t.Context(), t, n.Manager, "Frozen: it was before its supervisor was replaced")
	awaitFrozen(t, k)
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	again := n.recovered(v.ID, state)
	if _, err := client(again.View()).Screenshot(t.Context(), control.ScreenshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if xserver(t, again.View()) != x {
		t.Error("another X server")
	}
}

// S9, N2: a frozen screen stops in order, and dies when it is killed; a signal reaches it.
func TestS9FrozenStops(t *testing.T) {
	n := newNode(t)
	k := frozenScreen(t, n, "stopped")
	v := k.View()
	if err := k.Signal(t.Context(), unix.SIGWINCH); err != nil {
		t.Errorf("signal: %v", err)
	}
	if err := client(v).Sleep(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := k.Stop(t.Context(), 10*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := k.Exit(); exit.Code != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("exit %+v after %s", exit, time.Since(began))
	}
	n.nothingLeft(v)

	k = frozenScreen(t, n, "killed")
	v = k.View()
	if err := syscall.Kill(v.SupervisorPID, syscall.SIGSTOP); err != nil { // nobody thaws it but the driver
		t.Fatal(err)
	}
	if err := k.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)
}
