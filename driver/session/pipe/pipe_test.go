// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// A plan, which is longer than any packet, arrives as the file that it is.
func TestPlanArrives(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	plan, err := memory()
	must(t, err)
	text := strings.Repeat("a job's environment ", 100_000)
	_, err = plan.WriteString(text)
	must(t, err)
	got, passed := r.pass(supervisor, session, dialhome.Packet{ID: 7, Op: dialhome.OpStart, Body: dialhome.Encode(dialhome.Start{HasPlan: true})}, plan)
	if got.ID != 7 || got.Op != dialhome.OpStart || len(passed) != 1 {
		t.Fatalf("%+v with %d descriptors", got, len(passed))
	}
	f := taken(t, passed[0])
	received, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil || string(received) != text {
		t.Errorf("%d bytes arrive, %v; they have to be the same %d", len(received), err, len(text))
	}
}

// What the session writes into the supervisor's file is there with the answer.
func TestClipboardComesBack(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	for id, size := range map[uint64]int{3: 0, 4: 5, 5: dialhome.MaxClipboard} {
		mine, err := memory()
		must(t, err)
		defer mine.Close()
		must(t, supervisor.Send(dialhome.Packet{ID: id, Op: dialhome.OpReadClipboard, Body: dialhome.Encode(struct{}{})}, mine))
		_, passed, err := session.Receive()
		must(t, err)
		text := strings.Repeat("x", size)
		_, err = taken(t, passed[0]).WriteAt([]byte(text), 0)
		must(t, err)
		r.pass(session, supervisor, dialhome.Packet{ID: id, OK: true, Body: dialhome.Encode(dialhome.Text{Bytes: size})})
		got := make([]byte, size)
		if n, _ := mine.ReadAt(got, 0); n != size || string(got) != text {
			t.Errorf("%d of %d bytes came back", n, size)
		}
	}
}

// A command's input and output pass through, also more than there is credit for, and their
// ends are seen.
func TestCommandPipes(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	inRead, inWrite := newPipe(t)
	outRead, outWrite := newPipe(t)
	errRead, errWrite := newPipe(t)
	_, passed := r.pass(supervisor, session, dialhome.Packet{ID: 1, Op: dialhome.OpExec, Body: dialhome.Encode(dialhome.Exec{Argv: []string{"cat"}})}, inRead, outWrite, errWrite)
	if len(passed) != dialhome.ExecFiles {
		t.Fatalf("%d descriptors", len(passed))
	}
	in, out, trouble := taken(t, passed[0]), taken(t, passed[1]), taken(t, passed[2])
	go func() { // cat
		_, _ = io.Copy(out, in)
		_, _ = io.WriteString(trouble, "done")
		_, _ = out.Close(), trouble.Close()
	}()
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = inWrite.Write(sent)
		_ = inWrite.Close()
	}()
	got, err := io.ReadAll(outRead)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, %v; they have to be the same %d", len(got), err, len(sent))
	}
	if text, err := io.ReadAll(errRead); err != nil || string(text) != "done" {
		t.Errorf("the second output is %q, %v", text, err)
	}
}

// A program that writes to an output nobody reads any more is told so, as by a pipe.
func TestReaderLeaves(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	outRead, outWrite := newPipe(t)
	_, passed := r.pass(supervisor, session, dialhome.Packet{ID: 1, Op: dialhome.OpExec, Body: dialhome.Encode(dialhome.Exec{})}, outWrite)
	out := taken(t, passed[0])
	must(t, outRead.Close())
	expectBroken(t, out)
}

// expectBroken writes until the program would be told that nobody reads.
func expectBroken(t *testing.T, out *os.File) {
	t.Helper()
	for {
		if _, err := out.Write(make([]byte, 4096)); err != nil {
			if !errors.Is(err, unix.EPIPE) {
				t.Errorf("the program sees %v", err)
			}
			return
		}
	}
}

// One stream that nobody reads holds up no other: the window bounds what is on its way.
func TestStuckStreamHoldsUpNothing(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	_, stuckWrite := newPipe(t)
	freeRead, freeWrite := newPipe(t)
	_, passed := r.pass(supervisor, session, dialhome.Packet{ID: 1, Op: dialhome.OpExec, Body: dialhome.Encode(dialhome.Exec{})}, stuckWrite, freeWrite)
	stuck, free := taken(t, passed[0]), taken(t, passed[1])
	go func() { _, _ = stuck.Write(make([]byte, 8<<20)) }()
	go func() {
		_, _ = free.Write(make([]byte, 2<<20))
		_ = free.Close()
	}()
	if got, err := io.ReadAll(freeRead); len(got) != 2<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	r.pass(session, supervisor, dialhome.Packet{Event: dialhome.EventPainted, Body: dialhome.Encode(dialhome.Note{})})
}

// server is an X server as far as its socket goes.
func server(t *testing.T) (*net.UnixListener, dialhome.Desktop) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsp-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "rfb"), Net: "unix"})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	self, err := process.Observe(os.Getpid())
	must(t, err)
	return l, dialhome.Desktop{State: dialhome.Running, Display: 20, XPID: self.PID, XStart: self.Start}
}

func dialServer(t *testing.T, l *net.UnixListener) *os.File {
	t.Helper()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	must(t, err)
	f, err := c.File()
	must(t, err)
	_ = c.Close()
	return f
}

// A connection to the X server passes both ways; its peer is the node's half, which is what
// hello shows as the X server.
func TestX11Connection(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	l, desktop := server(t)
	shown, _ := r.pass(session, supervisor, dialhome.Packet{Event: dialhome.EventHello, Body: dialhome.Encode(desktop)})
	var d dialhome.Desktop
	must(t, dialhome.Decode(shown.Body, &d))
	if d.XServer() != r.node.self || d.Display != 20 {
		t.Errorf("the supervisor is shown %+v", d)
	}
	r.pass(supervisor, session, dialhome.Packet{ID: 9, Op: dialhome.OpDial, Body: dialhome.Encode(struct{}{})})
	answer, passed := r.pass(session, supervisor, dialhome.Packet{ID: 9, OK: true}, dialServer(t, l))
	if !answer.OK || len(passed) != 1 {
		t.Fatalf("%+v with %d descriptors", answer, len(passed))
	}
	if cred, err := unix.GetsockoptUcred(passed[0].FD(), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil || int(cred.Pid) != r.node.self.PID {
		t.Errorf("its peer is %+v, %v", cred, err)
	}
	viewer := taken(t, passed[0])
	x, err := l.Accept()
	must(t, err)
	go func() { _, _ = io.Copy(x, x); _ = x.(*net.UnixConn).CloseWrite() }()
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = viewer.Write(sent)
		_ = control(viewer, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
	}()
	if got, err := io.ReadAll(viewer); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// SEC-01: a stranger that answers on the X server's socket is not passed on.
func TestX11Stranger(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	l, desktop := server(t)
	desktop.XPID, desktop.XStart = 1, 1 // the X server is another process
	r.pass(session, supervisor, dialhome.Packet{Event: dialhome.EventHello, Body: dialhome.Encode(desktop)})
	r.pass(supervisor, session, dialhome.Packet{ID: 9, Op: dialhome.OpDial, Body: dialhome.Encode(struct{}{})})
	answer, passed := r.pass(session, supervisor, dialhome.Packet{ID: 9, OK: true}, dialServer(t, l))
	if answer.OK || answer.Err == nil || len(passed) > 0 {
		t.Errorf("%+v with %d descriptors", answer, len(passed))
	}
}

// A terminal's size and what is typed pass in, what is shown passes out, and its end is
// seen.
func TestTerminal(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	master, slave, err := pty.Open()
	must(t, err)
	defer slave.Close()
	r.pass(supervisor, session, dialhome.Packet{ID: 2, Op: dialhome.OpExec, Body: dialhome.Encode(dialhome.Exec{TTY: true})})
	_, passed := r.pass(session, supervisor, dialhome.Packet{ID: 2, OK: true}, master)
	mine := taken(t, passed[0])
	must(t, pty.Setsize(mine, &pty.Winsize{Rows: 44, Cols: 122}))
	must(t, unix.SetNonblock(int(mine.Fd()), true)) // Fd, by Setsize, has undone it
	_, err = mine.WriteString("typed\n")
	must(t, err)
	line := make([]byte, 64)
	n, err := slave.Read(line)
	must(t, err)
	if rows, columns, err := pty.Getsize(slave); string(line[:n]) != "typed\n" || rows != 44 || columns != 122 || err != nil {
		t.Errorf("%q at %dx%d, %v", line[:n], rows, columns, err)
	}
	_, err = slave.WriteString("shown")
	must(t, err)
	must(t, slave.Close())
	out, _ := io.ReadAll(mine) // ends with EIO, see pty(7)
	if want := "typed\r\nshown"; string(out) != want {
		t.Errorf("shown is %q, want %q", out, want)
	}
}

// The session dials again when the supervisor is gone, and the next one is another
// connection; what runs over streams goes on meanwhile.
func TestSupervisorAgain(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	must(t, supervisor.Close())
	if _, _, err := session.Receive(); !dialhome.IsClosed(err) {
		t.Fatalf("the session sees %v", err)
	}
	_ = session.Close()
	session, supervisor = r.connect()
	r.pass(supervisor, session, dialhome.Packet{ID: 1, Op: dialhome.OpSleep, Body: dialhome.Encode(dialhome.Sleep{})})
	must(t, session.Close())
	if _, _, err := supervisor.Receive(); !dialhome.IsClosed(err) {
		t.Fatalf("the supervisor sees %v", err)
	}
}

// Without a supervisor the session's connection ends, as its dial would fail.
func TestNoSupervisor(t *testing.T) {
	r := newRig(t)
	must(t, r.supervisor.Close())
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.inside, Net: "unixpacket"})
	must(t, err)
	conn := dialhome.NewConn(c)
	defer conn.Close()
	if _, _, err := conn.Receive(); !dialhome.IsClosed(err) {
		t.Errorf("the session sees %v", err)
	}
}

// The end of the pipe ends both halves and all that was carried.
func TestPipeEnds(t *testing.T) {
	r := newRig(t)
	session, supervisor := r.connect()
	outRead, outWrite := newPipe(t)
	_, passed := r.pass(supervisor, session, dialhome.Packet{ID: 1, Op: dialhome.OpExec, Body: dialhome.Encode(dialhome.Exec{})}, outWrite)
	r.cut()
	_ = await(t, r.nodeOver)
	_ = await(t, r.insideOver)
	if _, err := io.ReadAll(outRead); err != nil {
		t.Errorf("an output of a command that is gone: %v", err)
	}
	expectBroken(t, taken(t, passed[0]))
	for _, c := range []*dialhome.Conn{session, supervisor} {
		if _, _, err := c.Receive(); !dialhome.IsClosed(err) {
			t.Errorf("a connection sees %v", err)
		}
	}
}
