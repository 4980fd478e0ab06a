// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// helperSession is a supervisor and, as its session, a process that can end.
type helperSession struct {
	*helper
	rig *rig
}

func newHelperSession(t *testing.T, change func(*Config)) *helperSession {
	t.Helper()
	path := filepath.Join(filepath.Dir(serverPath(t)), "s") // known before the supervisor is
	h := startHelper(t, "session", "DIAL="+path)
	r := newRig(t, func(c *Config) {
		c.Session = h.identity
		if change != nil {
			change(c)
		}
	})
	must(t, os.Symlink(r.dial, path))
	h.tell("dial")
	h.says("done dial")
	r.await("the session is taken", func() bool {
		r.link.mu.Lock()
		defer r.link.mu.Unlock()
		return r.link.line != nil
	})
	return &helperSession{h, r}
}

func TestExitStopped(t *testing.T) {
	s := newHelperSession(t, nil)
	s.tell("obey stop")
	err := s.rig.client.Stop(t.Context(), control.StopRequest{Signal: int(unix.SIGINT), Grace: 7 * time.Second})
	must(t, err)
	if got := s.says("stop "); got != `{"signal":2,"grace":7000000000}` {
		t.Errorf("the session was told %s", got)
	}
	if exit := s.rig.wait(); exit != (control.Exit{}) {
		t.Errorf("the screen ended with %+v, want 0", exit)
	}
	s.rig.awaitState(screen.Stopped)
}

// What a session says right before its end is its reason, however fast it ends.
func TestExitDied(t *testing.T) {
	for range 10 {
		s := newHelperSession(t, nil)
		s.rig.await("the supervisor follows the session", func() bool { // it writes its record before
			_, err := os.Stat(filepath.Join(s.rig.dir, recordName))
			return err == nil
		})
		s.rig.mu.Lock() // the supervisor is busy: what comes is read later
		s.tell("die")
		s.rig.await("its end is noticed", s.rig.link.isOver)
		s.rig.mu.Unlock()
		exit := s.rig.wait()
		if exit.Code != 1 || exit.Lost || exit.Reason.String() != "Xvnc exited 1" {
			t.Fatalf("the screen ended with %+v", exit)
		}
		s.rig.end()
	}
}

func TestExitKilled(t *testing.T) {
	s := newHelperSession(t, nil)
	must(t, s.Process.Kill())
	if exit := s.rig.wait(); !exit.Lost || exit.Code != 1 {
		t.Errorf("the screen ended with %+v, want lost", exit)
	}
	s.rig.awaitState(screen.Failed)
}

// A start that the session refuses ends the screen with its reason and kind.
func TestExitFailedStart(t *testing.T) {
	s := newHelperSession(t, withPlan)
	s.tell("refuse start")
	exit := s.rig.wait()
	if exit.Code != 1 || exit.Cause != "display_taken" || exit.Reason.String() != "display is ·[31mtaken" {
		t.Errorf("the screen ended with %+v", exit)
	}
	if strings.Contains(s.rig.log.String(), "CANARY") {
		t.Error("the environment is in the log")
	}
}

// The next supervisor of the same run tells how it ended; one of another run does not.
func TestStoredExit(t *testing.T) {
	s := newHelperSession(t, nil)
	s.tell("die")
	want := s.rig.wait()
	s.rig.end()
	next := newRigIn(t, s.rig.dir, s.rig.config)
	if got := next.wait(); got != want {
		t.Errorf("the next supervisor tells %+v, want %+v", got, want)
	}
	next.end()
	other := s.rig.config
	other.Instance = "instance-2"
	if got := newRigIn(t, s.rig.dir, other).wait(); !got.Lost {
		t.Errorf("another run tells %+v, want lost", got)
	}
}

// A supervisor that is told to go while the desktop starts does not take the start
// along: the session hears nothing but the end of the connection.
func TestTermDuringStart(t *testing.T) {
	r := newRig(t, withPlan)
	f := r.session(dialhome.Desktop{State: dialhome.Idle})
	_, passed := f.asked(dialhome.OpStart)
	dialhome.CloseAll(passed)
	r.end()
	must(t, f.raw.SetReadDeadline(time.Now().Add(limit)))
	if p, _, err := f.Receive(); !dialhome.IsClosed(err) {
		t.Errorf("the session was asked to %s (%v)", p.Op, err)
	}
}

// A stop while the desktop starts calls the start off; that is no failure.
func TestStopDuringStart(t *testing.T) {
	s := newHelperSession(t, withPlan)
	go func() { _ = s.rig.client.Stop(context.Background(), control.StopRequest{}) }()
	s.rig.awaitState(screen.Stopping)
	s.rig.failStart(&dialhome.Error{Kind: dialhome.KindFailed, Message: "called off"})
	must(t, s.Process.Kill())
	if exit := s.rig.wait(); exit.Code != 0 {
		t.Errorf("the screen ended with %+v, want 0", exit)
	}
}

// A stop that could not be asked for is asked for again.
func TestStopAgain(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.client.Stop(ctx, control.StopRequest{}) }()
	f.asked(dialhome.OpStop)
	_ = f.Close()
	r.await("the first stop has failed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.asking
	})
	f = r.session(dialhome.Desktop{State: dialhome.Starting})
	for range 3 { // several at once ask once
		go func() { _ = r.client.Stop(ctx, control.StopRequest{}) }()
	}
	p, _ := f.asked(dialhome.OpStop)
	f.answer(p.ID, nil)
	go func() { _ = r.client.Signal(ctx, control.SignalRequest{Signal: 1}) }()
	f.asked(dialhome.OpSignal)
}

func TestSignalNumbers(t *testing.T) {
	r := newRig(t, nil)
	for _, signal := range []int{-1, 0, 65} {
		if err := r.client.Signal(t.Context(), control.SignalRequest{Signal: signal}); !isKind(err, control.BadRequest) {
			t.Errorf("signal %d: %v", signal, err)
		}
	}
	if err := r.client.Stop(t.Context(), control.StopRequest{Signal: 65}); !isKind(err, control.BadRequest) {
		t.Errorf("stop by signal 65: %v", err)
	}
}

func writeRecord(t *testing.T, dir string, r record) {
	t.Helper()
	text, err := json.Marshal(r)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, recordName), text, 0o600))
}

// S11: a new supervisor adopts a desktop with the X server of its record, and the
// session hears nothing.
func TestS11Adoption(t *testing.T) {
	server := startHelper(t, "server", "SERVER="+serverPath(t))
	first := newRig(t, nil)
	d := first.withServer(server.identity)
	before := first.awaitState(screen.Ready).Seq
	first.end()
	next := newRigIn(t, first.dir, first.config)
	d.Fence = &dialhome.Fence{Enforced: true}
	next.session(d)
	if e := next.awaitState(screen.Ready); e.Seq <= before || e.Fence != control.Enforced {
		t.Errorf("event %d (%s) after event %d of the supervisor before", e.Seq, e.Fence, before)
	}
	status, err := next.client.Status(t.Context())
	must(t, err)
	if status.Display != ":77" || status.State != screen.Ready {
		t.Errorf("the status is %+v", status)
	}
	info, err := os.Stat(filepath.Join(first.dir, recordName))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the record has mode %v", info.Mode())
	}
}

// P10a: a session cannot show another X server than the record's; the screen ends.
func TestP10aAnotherServer(t *testing.T) {
	recorded := startHelper(t, "server", "SERVER="+serverPath(t))
	shown := startHelper(t, "server", "SERVER="+serverPath(t))
	r := newRig(t, nil)
	r.end()
	writeRecord(t, r.dir, record{V: recordVersion, Instance: r.config.Instance, XServer: recorded.identity, Display: 77, Ready: true})
	next := newRigIn(t, r.dir, r.config)
	d := dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: shown.identity.PID, XStart: shown.identity.Start}
	f := next.session(d)
	f.asked(dialhome.OpStop)
	next.mu.Lock()
	defer next.mu.Unlock()
	if next.record.XServer != recorded.identity || next.failure == nil {
		t.Errorf("record %+v, failure %v", next.record, next.failure)
	}
}

// A record of another run, or one that cannot be read, says nothing about this one.
func TestForeignRecord(t *testing.T) {
	server := startHelper(t, "server", "SERVER="+serverPath(t))
	for name, text := range map[string]string{
		"another run": `{"v":1,"instance":"other","ready":true,"xserver":{"pid":1,"start":1,"boot":"x"},"exit":{"code":3}}`,
		"garbage":     "\x00\x01",
		"cut off":     `{"v":1,"inst`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.end()
			must(t, os.WriteFile(filepath.Join(r.dir, recordName), []byte(text), 0o600))
			next := newRigIn(t, r.dir, r.config)
			next.withServer(server.identity)
			next.mu.Lock()
			defer next.mu.Unlock()
			if next.record.XServer != server.identity || next.record.Exit != nil {
				t.Errorf("the record is %+v", next.record)
			}
		})
	}
}

// A start that was running when its supervisor died: the successor adopts once the
// desktop is there.
func TestAdoptionOfARunningStart(t *testing.T) {
	server := startHelper(t, "server", "SERVER="+serverPath(t))
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	f.event(dialhome.EventHello, dialhome.Desktop{
		State: dialhome.Running, Display: 77, XPID: server.identity.PID, XStart: server.identity.Start,
	})
	r.awaitState(screen.Ready)
	events, _ := r.journal.after(0)
	if len(events) != 1 {
		t.Errorf("%d events, want one that it is ready", len(events))
	}
}

// A session that never got its start has no use to the successor.
func TestAdoptionOfAnIdleSession(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Idle})
	f.asked(dialhome.OpStop)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || !strings.Contains(r.failure.Message, "interrupted") {
		t.Errorf("the failure is %v", r.failure)
	}
}

// X11: where the session has pids of its own, the X server is who the kernel says is
// behind the connection that it passes; an outsider is not taken.
func TestX11ServerByTheKernel(t *testing.T) {
	path := serverPath(t)
	server := startHelper(t, "server", "SERVER="+path)
	server.says("listening")
	for _, inside := range []int{server.identity.PID, 17} {
		r := newRig(t, func(c *Config) { c.SharedPIDs = false })
		f := r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: inside, XStart: 1})
		p, _ := f.asked(dialhome.OpDial)
		f.answer(p.ID, nil, dialServer(t, path))
		if inside != server.identity.PID { // another process than the session speaks of
			f.awaitEnd()
			continue
		}
		r.awaitState(screen.Ready)
		r.mu.Lock()
		if r.record.XServer != server.identity {
			t.Errorf("recorded %+v, want %+v", r.record.XServer, server.identity)
		}
		r.mu.Unlock()
	}
}

func TestEventNumbers(t *testing.T) {
	now := time.UnixMicro(1_800_000_000_000_000)
	for _, last := range []uint64{0, uint64(now.UnixMicro()) - 1, uint64(now.UnixMicro()), uint64(now.UnixMicro()) + 1<<40} {
		if first := firstNumber(now, last); first <= last {
			t.Errorf("%d follows %d", first, last)
		}
	}
	if first := firstNumber(now, 0); first != uint64(now.UnixMicro()) {
		t.Errorf("the first number is %d", first)
	}
	if first := firstNumber(time.UnixMicro(-5), 3); first <= 3 {
		t.Errorf("%d follows 3 when the clock is before 1970", first)
	}
}
