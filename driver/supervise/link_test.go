// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X13: connections by other processes are closed and counted, and fill no log; the
// session gets in between them.
func TestX13Strangers(t *testing.T) {
	const each = 500
	r := newRig(t, nil)
	first := startHelper(t, "stranger", "DIAL="+r.dial, "COUNT="+strconv.Itoa(each))
	first.says("refused")
	r.session(dialhome.Desktop{State: dialhome.Starting})
	second := startHelper(t, "stranger", "DIAL="+r.dial, "COUNT=100")
	second.says("refused")
	r.link.mu.Lock()
	refused, line := r.link.refused, r.link.line
	r.link.mu.Unlock()
	if refused != each+100 {
		t.Errorf("%d connections refused, want %d", refused, each+100)
	}
	if line == nil {
		t.Error("the session was thrown out")
	}
	if n := strings.Count(r.log.String(), "refused a dial-home connection"); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
}

// X13: a pid that another process had before is not the session.
func TestX13RecycledPID(t *testing.T) {
	r := newRig(t, nil) // for its connection
	r.end()
	old := r.config.Session
	old.Start--
	l := newLink(old, hclog.NewNullLogger(), nil)
	path := serverPath(t)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- l.serve(listener) }()
	r.dial = path
	r.connect().awaitEnd()
	_ = listener.Close()
	<-served
	if l.line != nil {
		t.Error("a process with another start time was taken")
	}
}

// X13: while the session's connection lives a second one is refused, and the first
// goes on.
func TestX13SecondConnection(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	r.connect().awaitEnd()
	go func() { _, _ = r.link.call(context.Background(), question{op: dialhome.OpSignal, body: struct{}{}}) }()
	p, _ := f.asked(dialhome.OpSignal)
	f.answer(p.ID, nil)
}

// X13: the credentials are those of connect(): a child that inherits the connection is
// cut off when the session has ended.
func TestX13ForkedChild(t *testing.T) {
	s := newHelperSession(t, nil)
	s.tell("fork")
	child, err := strconv.Atoi(strings.TrimSpace(s.says("forked")))
	must(t, err)
	held, err := process.Observe(child)
	must(t, err)
	t.Cleanup(func() {
		if held.Alive() {
			_ = unix.Kill(child, unix.SIGKILL)
		}
	})
	if exit := s.rig.wait(); !exit.Lost {
		t.Errorf("the screen ended with %+v, want lost", exit)
	}
	if got := s.says("ended"); got != " true" {
		t.Errorf("the child's connection ended: %s", got)
	}
}

// X12: what nobody asked for ends the connection, closes what came with it, and keeps
// the session out for a while.
func TestX12Unasked(t *testing.T) {
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	many := make([]*os.File, 253)
	for i := range many {
		many[i] = null
	}
	died := dialhome.Encode(dialhome.Note{Text: "x"})
	for name, breach := range map[string]func(f *fake){
		"an answer":                  func(f *fake) { f.answer(99, nil) },
		"an answer with descriptors": func(f *fake) { f.answer(99, nil, many...) },
		"an event with descriptors": func(f *fake) {
			must(t, f.Send(dialhome.Packet{Event: dialhome.EventDied, Body: died}, many...))
		},
		"a request": func(f *fake) { must(t, f.Send(dialhome.Packet{ID: 1, Op: dialhome.OpStop, Body: died})) },
		"no packet": func(f *fake) { _, err := f.raw.Write([]byte("RFB 003.008\n")); must(t, err) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			f := r.session(dialhome.Desktop{State: dialhome.Starting})
			before := held(t, os.DevNull)
			breach(f)
			f.awaitEnd()
			r.await("the breach is noticed", func() bool {
				r.link.mu.Lock()
				defer r.link.mu.Unlock()
				return r.link.breaches == 1 && r.link.line == nil
			})
			r.connect().awaitEnd() // kept out
			r.await("what came is closed", func() bool { return held(t, os.DevNull) == before })
		})
	}
}

// X12: each further breach keeps the session out for longer, up to a minute.
func TestX12Punishment(t *testing.T) {
	l := newLink(process.Identity{}, nil, nil)
	breach := &dialhome.ProtocolError{Reason: "x"}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := l.punish(breach); got != want*time.Second {
			t.Errorf("kept out for %s, want %ds", got, want)
		}
	}
	if l.punish(unix.ECONNRESET) != 0 {
		t.Error("a lost connection counts as a breach")
	}
}

// X12: an answer with another number of descriptors than asked for ends the connection.
func TestX12WrongCount(t *testing.T) {
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	for _, files := range [][]*os.File{{}, {null, null}} {
		r := newRig(t, nil)
		f := r.session(dialhome.Desktop{State: dialhome.Starting})
		before := held(t, os.DevNull)
		asked := make(chan error, 1)
		go func() {
			_, err := r.link.call(context.Background(), question{op: dialhome.OpDial, body: struct{}{}, want: 1})
			asked <- err
		}()
		p, _ := f.asked(dialhome.OpDial)
		f.answer(p.ID, nil, files...)
		f.awaitEnd()
		var breach *dialhome.ProtocolError
		if err := <-asked; !errors.As(err, &breach) {
			t.Errorf("with %d descriptors the asker hears %v", len(files), err)
		}
		r.await("what came is closed", func() bool { return held(t, os.DevNull) == before })
		r.end()
	}
}

// A caller that left does not make its late answer an unasked one; what rides in it is
// closed.
func TestAbandonedCall(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan error, 1)
	go func() {
		_, err := r.link.call(ctx, question{op: dialhome.OpDial, body: struct{}{}, want: 1})
		asked <- err
	}()
	p, _ := f.asked(dialhome.OpDial)
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller hears %v", err)
	}
	fd, err := unix.MemfdCreate("abandoned", unix.MFD_CLOEXEC)
	must(t, err)
	late := os.NewFile(uintptr(fd), "abandoned")
	f.answer(p.ID, nil, late)
	_ = late.Close()
	// The connection still works, so the answer before has been dealt with.
	go func() { _, _ = r.link.call(context.Background(), question{op: dialhome.OpSignal, body: struct{}{}}) }()
	p, _ = f.asked(dialhome.OpSignal)
	f.answer(p.ID, nil)
	await(t, "the late descriptor is closed", func() bool { return held(t, "/memfd:abandoned (deleted)") == 0 })
}

// The end of the connection answers everybody who waits.
func TestCallsEndWithTheLine(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	asked := make(chan error, 3)
	for range cap(asked) {
		go func() {
			_, err := r.link.call(context.Background(), question{op: dialhome.OpSignal, body: struct{}{}})
			asked <- err
		}()
		f.asked(dialhome.OpSignal)
	}
	_ = f.Close()
	for range cap(asked) {
		if err := <-asked; !errors.Is(err, errNoSession) {
			t.Errorf("the caller hears %v", err)
		}
	}
}

// X12: more requests than may be in flight are refused as busy; a stop still gets
// through.
func TestX12Outstanding(t *testing.T) {
	r := newRig(t, nil)
	r.link.requests = newBucket(1000, 1000)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxOutstanding {
		go func() { _, _ = r.link.call(ctx, question{op: dialhome.OpSignal, body: struct{}{}}) }()
		f.asked(dialhome.OpSignal)
	}
	if err := r.client.Signal(ctx, control.SignalRequest{Signal: 1}); !isKind(err, control.Busy) {
		t.Errorf("one more hears %v, want busy", err)
	}
	go func() { _ = r.client.Stop(ctx, control.StopRequest{}) }()
	f.asked(dialhome.OpStop)
}

// A refusal's words come from inside: no control character reaches the caller (X32).
func TestX32Refusal(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Starting})
	heard := make(chan error, 1)
	go func() { heard <- r.client.Signal(context.Background(), control.SignalRequest{Signal: 1}) }()
	p, _ := f.asked(dialhome.OpSignal)
	must(t, f.Send(dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: "odd", Message: "\x1b[31mred\n" + strings.Repeat("x", 9000)}}))
	err := <-heard
	if !isKind(err, control.Refused) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 400 {
		t.Errorf("the caller hears %q", err)
	}
}

// What a session says too often is heard later, and its connection goes on: it was cut once
// for wakes in quick succession, and a program that copies all the time could have it cut.
func TestX12EventsTooOften(t *testing.T) {
	for name, event := range map[string]dialhome.Packet{
		"copies":               {Event: dialhome.EventClipboard, Body: dialhome.Encode(dialhome.Note{})},
		"an end of no command": {Event: dialhome.EventExited, Body: dialhome.Encode(dialhome.Exited{Command: 5})},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			f := r.session(dialhome.Desktop{State: dialhome.Starting})
			const more = 10
			began := time.Now()
			for range eventBurst + more {
				must(t, f.Send(event))
			}
			f.event(dialhome.EventFence, dialhome.Fence{Enforced: true})
			r.await("the last event", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.fence.Mode == control.Enforced
			})
			if took := time.Since(began); took < more*time.Second/eventsPerSecond {
				t.Errorf("%d events are heard within %s", eventBurst+more, took)
			}
			go func() { _, _ = r.link.call(context.Background(), question{op: dialhome.OpSignal, body: struct{}{}}) }()
			p, _ := f.asked(dialhome.OpSignal)
			f.answer(p.ID, nil)
		})
	}
}

// A session that connects again tells a supervisor that has its desktop what was reported to
// nobody meanwhile; one that has no desktop yet believes nothing of it.
func TestHelloAgain(t *testing.T) {
	r := newRig(t, nil)
	hello := dialhome.Desktop{State: dialhome.Running, Fence: &dialhome.Fence{Enforced: true}, Browser: &dialhome.Browser{Executable: "/usr/bin/chromium"}}
	r.onHello(hello)
	if r.fence.Mode == control.Enforced || r.browser != nil {
		t.Errorf("before it is ready: %+v, %+v", r.fence, r.browser)
	}
	r.enter(screen.Ready, control.EventReady, "")
	r.onHello(dialhome.Desktop{State: dialhome.Dozing, Fence: hello.Fence})
	if r.fence.Mode == control.Enforced {
		t.Errorf("of a desktop that goes to sleep: %+v", r.fence)
	}
	r.onHello(hello)
	if r.fence.Mode != control.Enforced || r.browser == nil || r.browser.Executable.String() != "/usr/bin/chromium" {
		t.Errorf("after it: %+v, %+v", r.fence, r.browser)
	}
}

// X25: a session cannot push what matters out of the journal.
func TestX25Notes(t *testing.T) {
	r := newRig(t, nil)
	r.enter(screen.Ready, control.EventState, "first")
	for i := range 1000 {
		r.onEvent(dialhome.Packet{Event: dialhome.EventFence, Body: dialhome.Encode(dialhome.Fence{Enforced: i%2 == 0})})
		r.onEvent(dialhome.Packet{Event: dialhome.EventRestarted, Body: dialhome.Encode(dialhome.Note{Program: "x", Text: "y"})})
	}
	events, _ := r.journal.after(0)
	if events[0].Reason.String() != "first" || len(events) != 1+noteBurst {
		t.Errorf("%d events, the first one is %q", len(events), events[0].Reason)
	}
}

// held counts this process' descriptors of a file.
func held(t *testing.T, name string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	count := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == name {
			count++
		}
	}
	return count
}
