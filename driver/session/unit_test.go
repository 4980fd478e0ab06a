// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"

	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// limit bounds every wait of these tests; none takes nearly as long.
const limit = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fifo is a FIFO with both ends open, as a log collector and a session have it.
func fifo(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	must(t, unix.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	writer, err = os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
	return reader, writer
}

// DSP-17: a log that nobody reads holds nobody up. What was dropped is counted, lines
// stay whole, and the count is reported once there is room.
func TestDSP17FullPipe(t *testing.T) {
	reader, writer := fifo(t)
	log := newSink(writer)
	line := strings.Repeat("x", 6000) + "\n" // not a divisor of the pipe's room
	const lines = 100
	for range lines {
		if n, err := log.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if log.dropped == 0 {
		t.Fatal("nothing was dropped: the pipe was not full")
	}
	dropped := log.dropped
	received := drain(t, reader)
	_, _ = log.Write([]byte("after\n"))
	received += drain(t, reader)
	got := strings.Split(strings.TrimSuffix(received, "\n"), "\n")
	whole := 0
	for _, l := range got {
		if l+"\n" == line {
			whole++
		}
	}
	if whole+dropped != lines {
		t.Errorf("%d whole lines and %d dropped, want %d together", whole, dropped, lines)
	}
	note := "session: " + strconv.Itoa(dropped) + " writes to the log dropped: nobody read it"
	if len(got) < 2 || got[len(got)-2] != note || got[len(got)-1] != "after" {
		t.Errorf("the log ends with %q", got[max(0, len(got)-2):])
	}
}

// drain reads what is there.
func drain(t *testing.T, r *os.File) string {
	t.Helper()
	var all strings.Builder
	buf := make([]byte, 128<<10)
	for {
		n, err := unix.Read(int(r.Fd()), buf)
		_ = unix.SetNonblock(int(r.Fd()), true) // Fd made it block
		if n > 0 {
			all.Write(buf[:n])
		}
		if n <= 0 || err != nil {
			return all.String()
		}
	}
}

// DSP-17: a log whose reader is gone ends nobody; the next reader gets the count and
// what follows.
func TestDSP17ReaderGone(t *testing.T) {
	reader, writer := fifo(t)
	log := newSink(writer)
	path := reader.Name()
	_ = reader.Close()
	_, _ = log.Write([]byte("into nothing\n"))
	next, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	defer next.Close()
	_, _ = log.Write([]byte("heard\n"))
	if got := drain(t, next); got != "session: 1 writes to the log dropped: nobody read it\nheard\n" {
		t.Errorf("the next reader gets %q", got)
	}
}

// listen is a supervisor's socket.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsn-") // short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	must(t, l.SetDeadline(time.Now().Add(limit)))
	return l, path
}

// local is a session in this process; it has no desktop.
func local(t *testing.T, path string) (*session, chan int) {
	t.Helper()
	s := newSession(path, io.Discard)
	ended := make(chan int, 1)
	go func() { ended <- s.run() }()
	t.Cleanup(func() {
		s.stop()
		select {
		case <-ended:
		case <-time.After(limit):
			t.Error("the session does not end")
		}
	})
	return s, ended
}

// supervisor is the test's end of a session's connection.
type supervisor struct {
	*dialhome.Conn
	t   *testing.T
	raw *net.UnixConn
	ids uint64
	// events that came while an answer was awaited
	events []dialhome.Packet
}

func accept(t *testing.T, l *net.UnixListener) *supervisor {
	t.Helper()
	c, err := l.AcceptUnix()
	must(t, err)
	s := &supervisor{Conn: dialhome.NewConn(c), t: t, raw: c}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *supervisor) receive() (dialhome.Packet, []*dialhome.Descriptor) {
	s.t.Helper()
	must(s.t, s.raw.SetReadDeadline(time.Now().Add(limit)))
	p, passed, err := s.Receive()
	must(s.t, err)
	return p, passed
}

func (s *supervisor) hello() dialhome.Desktop {
	s.t.Helper()
	var d dialhome.Desktop
	must(s.t, dialhome.Decode(s.event(dialhome.EventHello).Body, &d))
	return d
}

// event is the next event of a name, also one that came before an answer.
func (s *supervisor) event(name dialhome.Event) dialhome.Packet {
	s.t.Helper()
	for i, p := range s.events {
		if p.Event == name {
			s.events = append(s.events[:i:i], s.events[i+1:]...)
			return p
		}
	}
	for {
		if p, _ := s.receive(); p.Event == name {
			return p
		} else if p.Event != "" {
			s.events = append(s.events, p)
		}
	}
}

// send asks and returns the request's id.
func (s *supervisor) send(op dialhome.Op, body any, files ...*os.File) uint64 {
	s.t.Helper()
	s.ids++
	must(s.t, s.Send(dialhome.Packet{ID: s.ids, Op: op, Body: dialhome.Encode(body)}, files...))
	return s.ids
}

// ask sends and waits for the answer.
func (s *supervisor) ask(op dialhome.Op, body any, files ...*os.File) (dialhome.Packet, []*dialhome.Descriptor) {
	s.t.Helper()
	id := s.send(op, body, files...)
	for {
		p, passed := s.receive()
		if p.ID == id {
			return p, passed
		}
		s.events = append(s.events, p)
	}
}

// A session whose launcher died before any supervisor came does not stay.
func TestOrphan(t *testing.T) {
	s := newSession(filepath.Join(t.TempDir(), "nobody"), io.Discard)
	s.patience = 30 * time.Millisecond
	if code := s.run(); code != exitFailed {
		t.Errorf("ended with %d, want %d", code, exitFailed)
	}
}

// A supervisor that asked for something is in charge: the session waits for the next
// one without a limit.
func TestNoOrphanWithSupervisor(t *testing.T) {
	l, path := listen(t)
	s := newSession(path, io.Discard)
	s.patience = 100 * time.Millisecond
	ended := make(chan int, 1)
	go func() { ended <- s.run() }()
	first := accept(t, l)
	first.ask(dialhome.OpDial, struct{}{})
	began := time.Now()
	_ = first.Close()
	for time.Since(began) < 2*s.patience { // dials go on all that time
		next := accept(t, l)
		next.hello()
		_ = next.Close()
	}
	last := accept(t, l)
	last.ask(dialhome.OpStop, dialhome.Stop{})
	if code := <-ended; code != exitStopped {
		t.Errorf("ended with %d, want %d", code, exitStopped)
	}
}

// The session dials less and less often while it is refused.
func TestRedialBackOff(t *testing.T) {
	l, path := listen(t)
	local(t, path)
	began := time.Now()
	for range 5 {
		_ = accept(t, l).Close()
	}
	const least = (1 + 2 + 4 + 8) * shortestWait
	if took := time.Since(began); took < least {
		t.Errorf("5 dials within %s, want at least %s", took, least)
	}
}

// Without a desktop everything that needs one is refused, and the session goes on.
func TestIdleSession(t *testing.T) {
	l, path := listen(t)
	local(t, path)
	s := accept(t, l)
	if d := s.hello(); d.State != dialhome.Idle {
		t.Errorf("it is %s", d.State)
	}
	pipes := func() []*os.File {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		must(t, err)
		t.Cleanup(func() { _ = null.Close() })
		return []*os.File{null, null, null}
	}
	for op, body := range map[dialhome.Op]any{
		dialhome.OpDial: struct{}{}, dialhome.OpExec: dialhome.Exec{Argv: []string{"true"}}, dialhome.OpSignal: dialhome.Signal{Signal: 1},
	} {
		p, _ := s.ask(op, body, pipes()...)
		if p.Err == nil || p.Err.Kind != dialhome.KindState {
			t.Errorf("%s: %+v", op, p.Err)
		}
	}
	for op, body := range map[dialhome.Op]any{"dance": 1, dialhome.OpSignal: "x", dialhome.OpStop: []int{1}, dialhome.OpExec: dialhome.Exec{}} {
		if p, _ := s.ask(op, body); p.Err == nil || p.Err.Kind != dialhome.KindFailed {
			t.Errorf("%s with %v: %+v", op, body, p.Err)
		}
	}
}

// A failed start ends the session with its reason, which names no value of the plan.
func TestFailedStart(t *testing.T) {
	for name, start := range map[string]struct {
		body dialhome.Start
		plan string
	}{
		"no plan":        {dialhome.Start{}, ""},
		"not a plan":     {dialhome.Start{HasPlan: true}, "SECRET=CANARY"},
		"a wrong plan":   {dialhome.Start{HasPlan: true}, `{"env":["SECRET=CANARY"],"deadline":1000000000}`},
		"plan left out":  {dialhome.Start{HasPlan: true}, ""},
		"no time at all": {dialhome.Start{HasPlan: true}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := listen(t)
			_, ended := local(t, path)
			s := accept(t, l)
			var files []*os.File
			if start.plan != "" {
				files = append(files, memory(t, start.plan))
			}
			p, _ := s.ask(dialhome.OpStart, start.body, files...)
			if p.Err == nil {
				t.Fatal("it started")
			}
			var note dialhome.Note
			must(t, dialhome.Decode(s.event(dialhome.EventDied).Body, &note))
			if note.Text == "" || note.Text != p.Err.Message || strings.Contains(note.Text, "CANARY") {
				t.Errorf("died of %q, refused with %q", note.Text, p.Err.Message)
			}
			if _, _, err := s.Receive(); !dialhome.IsClosed(err) {
				t.Errorf("the connection goes on: %v", err)
			}
			select {
			case code := <-ended:
				if code != exitFailed {
					t.Errorf("ended with %d, want %d", code, exitFailed)
				}
				ended <- code // for the clean-up
			case <-time.After(limit):
				t.Fatal("the session goes on")
			}
		})
	}
}

func memory(t *testing.T, text string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "plan")
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.WriteString(text)
	must(t, err)
	return f
}

// A supervisor that stopped reading is given up, and holds nobody up until then; what
// was to be passed to it is closed.
func TestStuckSupervisor(t *testing.T) {
	l, path := listen(t)
	near, err := dial(path)
	must(t, err)
	accept(t, l)
	link := newLink(near, newCommands(nil))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	for range 4 * queuedPackets { // nobody writes: run has not begun
		link.post(dialhome.Packet{Event: dialhome.EventPainted})
	}
	link.post(dialhome.Packet{ID: 1, OK: true}, w)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the descriptor is still open: %v", err)
	}
	link.run(t.Context())
	link.post(dialhome.Packet{Event: dialhome.EventPainted}) // after the end: nothing happens
	if _, _, err := near.Receive(); !dialhome.IsClosed(err) {
		t.Errorf("the connection lives: %v", err)
	}
}

// What is queued when the session ends is still written.
func TestLastWords(t *testing.T) {
	l, path := listen(t)
	near, err := dial(path)
	must(t, err)
	s := accept(t, l)
	link := newLink(near, newCommands(nil))
	for range 10 {
		link.post(dialhome.Packet{Event: dialhome.EventDied, Body: dialhome.Encode(dialhome.Note{Text: "x"})})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	link.run(ctx)
	for range 10 {
		s.event(dialhome.EventDied)
	}
	if _, _, err := s.Receive(); !dialhome.IsClosed(err) {
		t.Errorf("after the last word: %v", err)
	}
}

func TestBounded(t *testing.T) {
	long := strings.Repeat("ä", 4096)
	if got := bounded("x" + long); len(got) > 4096+len("…") || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
	lines := boundedLines(append(make([]string, 30), "x"+long))
	if len(lines) != 20 || len(lines[19]) > 512 || !utf8.ValidString(lines[19]) {
		t.Errorf("%d lines, the last has %d bytes", len(lines), len(lines[len(lines)-1]))
	}
	if got := boundedLines(nil); len(got) != 0 {
		t.Errorf("no lines become %q", got)
	}
}

// Others waited for the start that the plan came with, not for a wake.
func TestWakeIsNotCrowded(t *testing.T) {
	s := newSession(filepath.Join(t.TempDir(), "none"), io.Discard)
	s.plan = &dialhome.Plan{Crowded: true, Look: "full"}
	woken, err := s.planOf(dialhome.Packet{Body: dialhome.Encode(dialhome.Start{})}, nil)
	must(t, err)
	if woken.Crowded || woken.Look != "full" {
		t.Errorf("woken with %+v", woken)
	}
}
