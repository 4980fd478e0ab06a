// SPDX-License-Identifier: MPL-2.0

package session

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// A desktop as the supervisor sees it come, and go on a stop. S9: who ignores TERM and
// who left its session dies too; the session ends with 0.
func TestS9Stop(t *testing.T) {
	r := newRig(t)
	s := accept(t, r.listener)
	if d := s.hello(); d.State != dialhome.Idle {
		t.Errorf("at first it is %s", d.State)
	}
	p, _ := s.ask(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(t, string(dialhome.Encode(r.plan))))
	d := decode[dialhome.Desktop](t, p.Body)
	if p.Err != nil || d.State != dialhome.Running || d.Display != r.plan.Display || !d.XServer().Alive() {
		t.Fatalf("the answer to the start is %+v, %+v", d, p.Err)
	}
	for _, name := range []dialhome.Event{dialhome.EventXServer, dialhome.EventWM, dialhome.EventPainted, dialhome.EventFence} {
		s.event(name)
	}
	if again, _ := s.ask(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(t, "{}")); again.Err == nil || again.Err.Kind != dialhome.KindState {
		t.Errorf("a second start: %+v", again.Err)
	}
	lines := s.start(`trap "" TERM; (setsid sh -c 'trap "" TERM INT; echo $$; while :; do sleep 1000; done' &) ; sleep 0; echo $$; while :; do sleep 1000; done`)
	var stubborn [2]int
	for i := range stubborn {
		if _, err := fmt.Fscan(lines, &stubborn[i]); err != nil {
			t.Fatal(err)
		}
	}
	if p, _ := s.ask(dialhome.OpStop, dialhome.Stop{Signal: int(unix.SIGINT), Grace: 50 * time.Millisecond}); p.Err != nil {
		t.Errorf("stop: %s", p.Err.Message)
	}
	for _, pid := range stubborn {
		if err := unix.Kill(pid, 0); err == nil {
			t.Errorf("pid %d survived the stop", pid)
		}
	}
	if code := r.exitCode(); code != exitStopped {
		t.Errorf("the session ended with %d", code)
	}
	if d.XServer().Alive() {
		t.Error("the X server survived the stop")
	}
}

// start runs a script by exec and returns its output.
func (s *supervisor) start(script string) io.Reader {
	s.t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(s.t, err)
	defer null.Close()
	r, w, err := os.Pipe()
	must(s.t, err)
	defer w.Close()
	s.t.Cleanup(func() { _ = r.Close() })
	p, _ := s.ask(dialhome.OpExec, dialhome.Exec{Argv: []string{"sh", "-c", script}}, null, w, null)
	if p.Err != nil {
		s.t.Fatalf("exec: %s", p.Err.Message)
	}
	return r
}

// S11: supervisors come and go; the session dials the next one, which sees the same X
// server. What the dead one had asked to run ends.
func TestS11NextSupervisor(t *testing.T) {
	r := newRig(t)
	s := r.command()
	for range 3 {
		var pid int
		_, err := fmt.Fscan(s.start("echo $$; exec sleep 12345"), &pid)
		must(t, err)
		_ = s.Close()
		next := accept(t, r.listener)
		d := next.hello()
		if d.State != dialhome.Running || !d.XServer().Alive() {
			t.Fatalf("the next supervisor sees %+v", d)
		}
		await(t, "the command has ended", func() bool { return unix.Kill(pid, 0) != nil })
		if n := len(next.events); n != 0 {
			t.Errorf("%d events about what another one asked for", n)
		}
		s = next
	}
}

// S11: a supervisor that dies while the desktop starts does not take it along: the next
// one is told when it is ready.
func TestS11SupervisorDiesDuringStart(t *testing.T) {
	r := newRig(t)
	s := accept(t, r.listener)
	s.hello()
	s.send(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(t, string(dialhome.Encode(r.plan))))
	s.event(dialhome.EventXServer)
	_ = s.Close()
	next := accept(t, r.listener)
	d := next.hello()
	for d.State == dialhome.Starting {
		d = next.hello()
	}
	if d.State != dialhome.Running || !d.XServer().Alive() {
		t.Errorf("the next supervisor sees %+v", d)
	}
}

// S7: a stop while the desktop starts calls the start off and leaves nothing; the
// session was stopped, it did not fail.
func TestS7StopDuringStart(t *testing.T) {
	r := newRig(t)
	s := accept(t, r.listener)
	s.hello()
	start := s.send(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(t, string(dialhome.Encode(r.plan))))
	s.event(dialhome.EventXServer)
	stop := s.send(dialhome.OpStop, dialhome.Stop{Grace: time.Second})
	for answered := map[uint64]bool{}; !answered[stop]; {
		p, _ := s.receive()
		if p.Event == dialhome.EventDied {
			t.Errorf("the session says it died: %s", p.Body)
		}
		if p.ID == start && p.OK {
			t.Log("the start was faster than the stop")
		}
		answered[p.ID] = true
	}
	if code := r.exitCode(); code != exitStopped {
		t.Errorf("the session ended with %d", code)
	}
	if left := processesOf(r.uid); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

// A start that fails ends the session; the reason is the X server's last word.
func TestS8FailedStart(t *testing.T) {
	r := newRig(t)
	must(t, os.RemoveAll(r.plan.XDir))
	s := accept(t, r.listener)
	s.hello()
	p, _ := s.ask(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(t, string(dialhome.Encode(r.plan))))
	if p.Err == nil || p.Err.Kind != dialhome.KindFailed {
		t.Fatalf("the start: %+v", p.Err)
	}
	if note := decode[dialhome.Note](t, s.event(dialhome.EventDied).Body); note.Text != p.Err.Message {
		t.Errorf("died of %q, refused with %q", note.Text, p.Err.Message)
	}
	if code := r.exitCode(); code != exitFailed {
		t.Errorf("the session ended with %d", code)
	}
	if !strings.Contains(r.log.String(), p.Err.Message) {
		t.Error("the log does not say why")
	}
}

// The end of the X server ends the screen, and says so before.
func TestXServerDies(t *testing.T) {
	r := newRig(t)
	s := r.command()
	_ = s.Close()
	s = accept(t, r.listener)
	must(t, unix.Kill(s.hello().XPID, unix.SIGKILL))
	note := decode[dialhome.Note](t, s.event(dialhome.EventDied).Body)
	if !strings.Contains(note.Text, "Xvnc killed by signal 9") {
		t.Errorf("died of %q", note.Text)
	}
	if code := r.exitCode(); code != exitFailed {
		t.Errorf("the session ended with %d", code)
	}
}

// A session ended from outside says so, and leaves nothing.
func TestEndedFromOutside(t *testing.T) {
	r := newRig(t)
	s := r.command()
	must(t, r.cmd.Process.Signal(unix.SIGTERM))
	note := decode[dialhome.Note](t, s.event(dialhome.EventDied).Body)
	if !strings.Contains(note.Text, "SIGTERM") {
		t.Errorf("died of %q", note.Text)
	}
	if code := r.exitCode(); code != exitFailed {
		t.Errorf("the session ended with %d", code)
	}
}

// X2, X21: from another process of its uid a session can neither be looked into nor
// does it show the plan.
func TestX2SessionIsClosed(t *testing.T) {
	r := newRig(t)
	s := r.command()
	lines := s.start(fmt.Sprintf("cat /proc/%d/environ /proc/%d/mem >/dev/null 2>&1 && echo open || echo closed", r.cmd.Process.Pid, r.cmd.Process.Pid))
	var got string
	_, err := fmt.Fscan(lines, &got)
	must(t, err)
	if got != "closed" {
		t.Errorf("the session is %s", got)
	}
	entries, err := filepath.Glob(filepath.Join(r.plan.XDir, "*"))
	must(t, err)
	for _, path := range entries {
		info, err := os.Lstat(path)
		must(t, err)
		if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && strings.Contains(path, "Xauthority") {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}
