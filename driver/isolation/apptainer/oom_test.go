// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/task/tasktest"
	"github.com/botscreen/botscreen/shared/control"
)

// Issue 7, N2: the kernel's end of a program in a sandbox is in the events, by that word, as
// often as it happens; the desktop beside it goes on, and its own end is not taken for one.
func TestOOMKillInASandboxIsTold(t *testing.T) {
	m := newManaged(t, "534-537")
	k, err := m.tryWith("glutton", 300<<20)
	must(t, err)
	view := k.View()
	for range 2 {
		if _, result := m.shell(k, "exec tail /dev/zero"); result.Signal != 9 {
			t.Errorf("2 GiB of 300 MB: %+v", result)
		}
		event := tasktest.AwaitEvent(bounded(t), t, m.Manager, "Out of memory: the kernel ended")
		if event.Annotations["botscreen.event"] != string(control.EventMemory) || event.Annotations["botscreen.state"] != "ready" {
			t.Errorf("event %+v", event)
		}
		if !strings.Contains(event.Message, "the task's limit is 300 MB") {
			t.Errorf("event %+v", event)
		}
	}
	if again := k.View(); !again.Running || again.SessionPID != view.SessionPID {
		t.Errorf("it was %+v and is %+v", view, again)
	}
	must(t, k.Stop(bounded(t), 5*time.Second, 0))
	if exit := k.Exit(); exit.Code != 0 || exit.OOM {
		t.Errorf("exit %+v", exit)
	}
}

// Issue 7, N2: the end of a screen whose session the kernel took is told as out of memory,
// to Nomad and in words.
func TestOOMEndOfASandboxIsTold(t *testing.T) {
	m := newManaged(t, "534-537")
	k, err := m.tryWith("starved", 300<<20)
	must(t, err)
	must(t, tasktest.StarveSession(bounded(t), t, k))
}
