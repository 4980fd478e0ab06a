// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/driver/task/tasktest"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// usage is what the screen has used so far.
func (m *managed) usage(view task.View) isolation.Usage {
	m.t.Helper()
	k, err := m.Get(view.ID)
	must(m.t, err)
	usage, err := k.Usage(bounded(m.t))
	must(m.t, err)
	return usage
}

// Issue 7: a container's desktop is frozen too, by the kernel and not by its engine, costs no
// processor time then, and goes on at the next use with all of its processes.
func TestFreezeInAContainer(t *testing.T) {
	m := newManaged(t)
	request := m.request()
	request.Spec.Idle = screen.IdlePolicy{After: time.Second, Action: screen.IdleFreeze}
	k, err := m.Start(bounded(t), request)
	must(t, err)
	t.Cleanup(func() { _ = k.Destroy(bounded(t), true) })
	view := k.View()
	client := control.NewClient(control.Unix(view.OperatorSocket))
	defer client.Close()
	status, err := client.Status(bounded(t))
	must(t, err)
	if said := fmt.Sprint(status.Warnings); strings.Contains(said, "cannot be had on this node") {
		t.Skip(said)
	}
	tasktest.AwaitEvent(bounded(t), t, m.Manager, "Frozen: not used for 1s")
	before := m.usage(view)
	found, err := m.b.api.ContainerInspect(bounded(t), containerOf(t, m.b, view.Instance))
	must(t, err)
	if !found.State.Running || found.State.Pid != view.SessionPID {
		t.Errorf("the engine has it as %+v", found.State)
	}
	if after := m.usage(view); after.Stats.CPU.Total != before.Stats.CPU.Total {
		t.Errorf("a frozen desktop used the processor: %v, %v", before.Stats.CPU.Total, after.Stats.CPU.Total)
	}
	picture, err := client.Screenshot(bounded(t), control.ScreenshotRequest{})
	must(t, err)
	if len(picture.Data) < 1000 {
		t.Errorf("a picture of %d bytes", len(picture.Data))
	}
	tasktest.AwaitEvent(bounded(t), t, m.Manager, "it was frozen")
	if again := k.View(); again.SessionPID != view.SessionPID || !again.Running {
		t.Errorf("it was %+v and is %+v", view, again)
	}
	tasktest.AwaitEvent(bounded(t), t, m.Manager, "Frozen: not used for 1s")
	must(t, k.Stop(bounded(t), 5*time.Second, 0)) // also out of the frozen state
	m.expectNothingLeft(view)
}

// Issue 7, N2: the kernel's end of a program in a container is in the events, by that word;
// the desktop beside it goes on.
func TestOOMKillInAContainerIsTold(t *testing.T) {
	m := newManaged(t)
	request := m.request()
	request.Limits.MemoryBytes = 300 << 20
	k, err := m.Start(bounded(t), request)
	must(t, err)
	t.Cleanup(func() { _ = k.Destroy(bounded(t), true) })
	_, err = k.Exec(bounded(t), control.ExecRequest{Argv: []string{"tail", "/dev/zero"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	must(t, err)
	event := tasktest.AwaitEvent(bounded(t), t, m.Manager, "Out of memory: the kernel ended")
	if !strings.Contains(event.Message, "the task's limit is 300 MB") || event.Annotations["botscreen.state"] != "ready" {
		t.Errorf("event %+v", event)
	}
	if !k.View().Running {
		t.Error("the screen ended with it")
	}
}
