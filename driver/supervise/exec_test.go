// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
)

// Commands that really run are tested in package session, against this one. Here the
// session is the test, and misbehaves.

type execOutcome struct {
	result control.ExecResult
	out    string
	err    error
}

// exec runs a command through the API; outcome tells its end.
func (r *rig) exec(req control.ExecRequest) (stream chan *control.ExecStream, outcome chan execOutcome) {
	stream, outcome = make(chan *control.ExecStream, 1), make(chan execOutcome, 1)
	go func() {
		s, err := r.client.Exec(context.Background(), req)
		if err != nil {
			outcome <- execOutcome{err: err}
			return
		}
		stream <- s
		var out bytes.Buffer
		result, err := s.Copy(&out, &out)
		_ = s.Close()
		outcome <- execOutcome{result, out.String(), err}
	}()
	return stream, outcome
}

func starting() dialhome.Desktop { return dialhome.Desktop{State: dialhome.Starting} }

// What a command gets are pipes whose other ends stay here; anybody who holds one may
// open it anew, as /dev/stdout does, under whatever uid.
func TestExecPipes(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	stream, outcome := r.exec(control.ExecRequest{Argv: []string{"cat"}, Env: map[string]string{"A": "b"}, Dir: "/d"})
	p, passed := f.asked(dialhome.OpExec)
	if got := string(p.Body); got != `{"argv":["cat"],"env":["A=b"],"dir":"/d","tty":false,"marked":true}` {
		t.Errorf("the session was asked for %s", got)
	}
	if len(passed) != dialhome.ExecFiles {
		t.Fatalf("%d descriptors came", len(passed))
	}
	var pipes [dialhome.ExecFiles]*os.File
	for i, d := range passed {
		flags, err := unix.FcntlInt(uintptr(d.FD()), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("descriptor %d does not block (%v), programs expect it to", i, err)
		}
		pipes[i] = d.File("pipe")
		info, err := pipes[i].Stat()
		must(t, err)
		if info.Mode()&os.ModeNamedPipe == 0 || info.Mode().Perm() != 0o666 {
			t.Errorf("descriptor %d has mode %v", i, info.Mode())
		}
	}
	f.answer(p.ID, nil)
	s := <-stream
	in := s.Stdin()
	_, err := io.WriteString(in, "through")
	must(t, err)
	must(t, in.Close())
	text, err := io.ReadAll(pipes[0])
	must(t, err)
	if string(text) != "through" {
		t.Errorf("the command reads %q", text)
	}
	_, _ = pipes[1].WriteString("out ")
	_, _ = pipes[2].WriteString("err")
	for _, pipe := range pipes {
		_ = pipe.Close()
	}
	f.event(dialhome.EventExited, dialhome.Exited{Command: p.ID, Code: 7})
	got := <-outcome
	if got.err != nil || got.result.ExitCode != 7 || len(got.out) != len("out err") {
		t.Errorf("the caller hears %+v", got)
	}
}

// An end that is reported before the answer is not lost.
func TestExecEndsBeforeItsAnswer(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	_, outcome := r.exec(control.ExecRequest{Argv: []string{"true"}})
	p, passed := f.asked(dialhome.OpExec)
	dialhome.CloseAll(passed)
	f.event(dialhome.EventExited, dialhome.Exited{Command: p.ID, Code: 3})
	f.answer(p.ID, nil)
	if got := <-outcome; got.err != nil || got.result.ExitCode != 3 {
		t.Errorf("the caller hears %+v", got)
	}
}

// A command ends with the connection of the session, which cannot report it any more.
func TestExecEndsWithTheLine(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	_, outcome := r.exec(control.ExecRequest{Argv: []string{"sleep", "inf"}})
	p, passed := f.asked(dialhome.OpExec)
	f.answer(p.ID, nil)
	_ = f.Close()
	dialhome.CloseAll(passed)
	if got := <-outcome; got.err != nil || got.result.Signal != sigKill {
		t.Errorf("the caller hears %+v", got)
	}
}

// A caller that leaves has its command killed; a session that does not say so is not
// waited for.
func TestExecCallerGone(t *testing.T) {
	r := newRig(t, nil)
	r.patience = 10 * time.Millisecond
	f := r.session(starting())
	_, outcome := r.exec(control.ExecRequest{Argv: []string{"true"}}) // from here on everything runs
	p, passed := f.asked(dialhome.OpExec)
	dialhome.CloseAll(passed)
	f.answer(p.ID, nil)
	f.event(dialhome.EventExited, dialhome.Exited{Command: p.ID})
	<-outcome
	goroutines := runtime.NumGoroutine()
	stream, _ := r.exec(control.ExecRequest{Argv: []string{"sleep", "inf"}})
	p, passed = f.asked(dialhome.OpExec)
	f.answer(p.ID, nil)
	_ = (<-stream).Close()
	kill, _ := f.asked(dialhome.OpSignal)
	var signal dialhome.Signal
	must(t, dialhome.Decode(kill.Body, &signal))
	if signal.Command != p.ID || signal.Signal != sigKill {
		t.Errorf("the session was told %+v, the command is %d", signal, p.ID)
	}
	f.answer(kill.ID, nil)
	dialhome.CloseAll(passed)
	await(t, "the goroutines have returned", func() bool { return runtime.NumGoroutine() <= goroutines })
	await(t, "no command is waited for", func() bool {
		r.link.mu.Lock()
		defer r.link.mu.Unlock()
		return len(r.link.line.commands) == 0
	})
}

// The answer to a caller that left already: the command is killed, nobody knows it.
func TestExecAbandoned(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		request := dialhome.Exec{Argv: []string{"sleep", "inf"}}
		asked <- r.startOnPipes(ctx, &command{exited: make(chan dialhome.Exited, 1)}, request)
	}()
	p, passed := f.asked(dialhome.OpExec)
	dialhome.CloseAll(passed)
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller hears %v", err)
	}
	f.answer(p.ID, nil)
	kill, _ := f.asked(dialhome.OpSignal)
	if got := string(kill.Body); !strings.Contains(got, "\"signal\":9") {
		t.Errorf("the session was told %s", got)
	}
}

// X11: a terminal is the master of one and nothing else, least of all something whose
// own code would be asked.
func TestX11Terminals(t *testing.T) {
	for name := range evilDescriptors(nil) {
		if name == "terminal multiplexer" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			f := r.session(starting())
			evil := evilDescriptors(f)[name](t)
			_, outcome := r.exec(control.ExecRequest{Argv: []string{"sh"}, TTY: true})
			p, _ := f.asked(dialhome.OpExec)
			f.answer(p.ID, nil, evil)
			if got := <-outcome; got.err == nil {
				t.Error("it was taken for a terminal")
			}
			f.awaitEnd()
			await(t, "the slot is free", func() bool { return len(r.passed) == 0 })
		})
	}
	t.Run("slave", func(t *testing.T) {
		master, slave, err := pty.Open()
		must(t, err)
		defer master.Close()
		defer slave.Close()
		slots := newSlots()
		slot, err := slots.acquire()
		must(t, err)
		if _, err := acceptTerminal(passOver(t, slave), slot); err == nil {
			t.Error("a slave was taken for a master")
		}
	})
}

// X10: a sender that makes the terminal block for ever stops nobody but the two
// goroutines that touch it, and these end with the terminal.
func TestX10Terminal(t *testing.T) {
	master, slave, err := pty.Open()
	must(t, err)
	defer slave.Close()
	slots := newSlots()
	slot, err := slots.acquire()
	must(t, err)
	goroutines := runtime.NumGoroutine()
	term, err := acceptTerminal(passOver(t, master), slot)
	must(t, err)
	must(t, unix.SetNonblock(int(master.Fd()), false)) // from now on it blocks
	read := make(chan error, 1)
	go func() {
		_, err := term.output().Read(make([]byte, 9))
		read <- err
	}()
	_, err = slave.WriteString("x")
	must(t, err)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := term.output().Read(make([]byte, 9))
		read <- err
	}()
	began := time.Now()
	must(t, term.input().Close())
	must(t, term.output().Close())
	if err := <-read; err == nil {
		t.Error("a read succeeded after the close")
	}
	if took := time.Since(began); took > limit/4 {
		t.Errorf("the close took %s", took)
	}
	_ = master.Close()
	_ = slave.Close() // the last program leaves: the reader ends
	await(t, "the slot is free", func() bool { return len(slots) == 0 })
	await(t, "the goroutines have returned", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// End of input on a terminal is ^D, and twice after half a line, see termios(3).
func TestTerminalEndOfInput(t *testing.T) {
	for typed, want := range map[string]string{"": "\x04", "a\n": "a\n\x04", "a\r": "a\r\x04", "a": "a\x04\x04"} {
		r, w := io.Pipe()
		in := terminalInput{&terminal{in: w}}
		got := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(r)
			got <- string(text)
		}()
		if typed != "" {
			_, err := io.WriteString(in, typed)
			must(t, err)
		}
		must(t, in.Close())
		must(t, in.Close())
		if text := <-got; text != want {
			t.Errorf("after %q: %q, want %q", typed, text, want)
		}
	}
}

// Faults of a request are named before the session is asked, all at once.
func TestExecRequests(t *testing.T) {
	r := newRig(t, nil)
	r.session(starting())
	for name, req := range map[string]control.ExecRequest{
		"names":    {Argv: []string{"a\x00b"}, Env: map[string]string{"A=B": "", "": "x", "C": "\x00"}},
		"too long": {Argv: []string{"echo", strings.Repeat("x", dialhome.MaxPacket)}},
		"empty":    {Argv: []string{""}},
	} {
		_, err := r.client.Exec(t.Context(), req)
		if !isKind(err, control.BadRequest) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "names" && strings.Count(err.Error(), "must") < 4 {
			t.Errorf("not all faults are named: %v", err)
		}
	}
}

// A session may say anything about an end; what there cannot be is not passed on.
func TestExecResultBounds(t *testing.T) {
	for _, e := range []dialhome.Exited{{Code: -1}, {Code: 1 << 40, Signal: -9}, {Code: 256, Signal: 1 << 30}} {
		if got := resultOf(e); got.ExitCode != 255 || got.Signal != 0 {
			t.Errorf("%+v becomes %+v", e, got)
		}
	}
}

func TestExecWithoutSession(t *testing.T) {
	s := newHelperSession(t, nil)
	must(t, s.Process.Kill())
	s.rig.wait()
	_, err := s.rig.client.Exec(t.Context(), control.ExecRequest{Argv: []string{"true"}})
	if !isKind(err, control.Gone) {
		t.Errorf("the caller hears %v, want gone", err)
	}
}
