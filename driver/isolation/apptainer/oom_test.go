// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
)

// awaitEvent is the next event of the driver's with these words.
func (m *managed) awaitEvent(words string) (event task.Event) {
	m.t.Helper()
	found := errors.New("found")
	err := m.Events().Follow(bounded(m.t), func(e task.Event) error {
		if event = e; strings.Contains(e.Message, words) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		m.t.Fatalf("no event %q: %v", words, err)
	}
	return event
}

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
		event := m.awaitEvent("Out of memory: the kernel ended")
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
	// What takes the memory has been started, and has a score of its own, before the session
	// is the first to be chosen.
	in, letGo := io.Pipe()
	out, said := io.Pipe()
	argv := []string{"sh", "-c", "echo here; read go; echo 0 >/proc/self/oom_score_adj; exec tail /dev/zero"}
	go func() {
		_, err := k.Exec(bounded(t), control.ExecRequest{Argv: argv}, in, said, io.Discard, nil)
		_ = said.CloseWithError(err)
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	must(t, process.ScoreOOM(k.View().SessionPID, 1000))
	_, err = io.WriteString(letGo, "go\n")
	must(t, err)
	select {
	case <-k.Done():
	case <-time.After(limit):
		t.Fatal("the screen does not end")
	}
	if exit := k.Exit(); !exit.OOM || exit.Code == 0 || !strings.HasPrefix(exit.Err, "out of memory: ") {
		t.Errorf("exit %+v", exit)
	}
}
