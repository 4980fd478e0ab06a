// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// N1, issue 7: an agent that died between the start of a task and its record of it starts the
// task again, in the same driver process. The screen that it never learnt of ends, and does
// not keep the task from starting for ever.
func TestN1RunThatNomadLost(t *testing.T) {
	n := newNode(t)
	lost := n.start(n.request("lost"))
	v := lost.View()
	again := n.start(n.request("lost")) // the same alloc and task, another run
	await(t, "the end of the lost run", lost.Done())
	if exists(v.SessionPID, v) || again.View().SessionPID == v.SessionPID {
		t.Error("the lost run lives beside the new one")
	}
	if _, err := n.Get(v.ID); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("the lost run is remembered: %v", err)
	}
	if !xserver(t, again.View()).Alive() {
		t.Error("the new run has no X server")
	}
}

// The same where the first start is still on its way: it is given up, whether or not its
// caller is known to be gone.
func TestN1StartThatNomadLost(t *testing.T) {
	n := newNode(t)
	first := make(chan error, 1)
	request := n.request("slow")
	go func() {
		_, err := n.Start(t.Context(), request)
		first <- err
	}()
	if event := firstEvent(t, n); !strings.HasPrefix(event.Message, "Starting the desktop") {
		t.Fatalf("first event %q", event.Message)
	}
	again := n.start(n.request("slow"))
	if err := <-first; !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("the first start: %v", err)
	}
	if v := again.View(); len(processesOf(v.SupervisorAccount)) != 1 || !xserver(t, v).Alive() {
		t.Errorf("supervisors %v", processesOf(v.SupervisorAccount))
	}
}

// A screen that becomes ready for an agent that has died meanwhile is nobody's, and is taken
// away again.
func TestN1NobodyToHandTheScreenTo(t *testing.T) {
	n := newNode(t)
	ctx, die := context.WithCancel(t.Context())
	request, ended := n.request("orphan"), make(chan error, 1)
	go func() {
		_, err := n.Start(ctx, request)
		ended <- err
	}()
	firstEvent(t, n)
	letGo := n.HoldEvents() // that it is ready cannot be told, and the start does not go on
	operator := control.Unix(filepath.Join(n.settings.RunDir, screen.ID{Namespace: "default", Profile: "orphan"}.Hash(), "op"))
	deadline, tick := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for ready := false; !ready; {
		select {
		case <-tick.C:
			status, err := control.NewClient(operator).Status(t.Context())
			ready = err == nil && status.State == screen.Ready
		case <-deadline:
			letGo()
			t.Fatal("not ready within 30 s")
		}
	}
	die()
	letGo()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the start: %v", err)
	}
	if n.InUse() {
		t.Error("the screen is still somebody's")
	}
	again := n.start(n.request("orphan"))
	if v := again.View(); len(processesOf(v.SupervisorAccount)) != 1 {
		t.Errorf("supervisors %v", processesOf(v.SupervisorAccount))
	}
}

// A node that comes back starts a screen while it still ends the one that was given up with
// it: the start waits for that end. The session is held until the stop has become a kill.
func TestN1StartBesideAStop(t *testing.T) {
	n := newNode(t)
	old := n.start(n.request("back"))
	if err := syscall.Kill(old.View().SessionPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- old.Stop(t.Context(), time.Millisecond, syscall.SIGTERM) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !old.Ending() {
		<-tick.C
	}
	request := n.request("back")
	request.AllocID = "another-alloc"
	again := n.start(request)
	if err := <-stopped; err != nil {
		t.Errorf("the stop: %v", err)
	}
	await(t, "the end of the old screen", old.Done())
	if v := again.View(); !xserver(t, v).Alive() || len(processesOf(v.SupervisorAccount)) != 1 {
		t.Errorf("the new screen: supervisors %v", processesOf(v.SupervisorAccount))
	}
}
