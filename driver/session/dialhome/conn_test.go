// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a connection and the raw socket of its peer, who may send anything.
func pair(t *testing.T) (*Conn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "near")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	conn := NewConn(c.(*net.UnixConn))
	t.Cleanup(func() { _ = conn.Close(); _ = unix.Close(fds[1]) })
	return conn, fds[1]
}

// openFiles counts this process' descriptors, once those being closed are.
func openFiles(t *testing.T) int {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); Closing() > 0; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors are still being closed", Closing())
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func send(t *testing.T, fd int, text string, descriptors ...int) {
	t.Helper()
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	if err := unix.Sendmsg(fd, []byte(text), rights, nil, 0); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

const answerText = `{"v":1,"id":7,"ok":true}`

func repeat(fd, count int) []int {
	fds := make([]int, count)
	for i := range fds {
		fds[i] = fd
	}
	return fds
}

func TestRoundTrips(t *testing.T) {
	near, farFD := pair(t)
	fd, err := unix.Dup(farFD)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "far")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	far := NewConn(c.(*net.UnixConn))
	defer far.Close()
	for _, sent := range []Packet{
		{ID: 1, Op: OpStart, Body: Encode(Start{HasPlan: true})},
		{ID: 1, OK: true, Body: Encode(Desktop{State: Running, Display: 21, XPID: 4, XStart: 1 << 60})},
		{ID: 2, Err: &Error{Kind: KindNotFound, Message: "no such command"}},
		{Event: EventExited, Body: Encode(Exited{Command: 9, Code: 143, Signal: 15})},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := near.Send(sent, r); err != nil {
			t.Fatal(err)
		}
		_ = r.Close() // the copy that travels is the receiver's
		got, passed, err := far.Receive()
		if err != nil || len(passed) != 1 {
			t.Fatalf("received %d descriptors, %v", len(passed), err)
		}
		sent.V = Version
		if want, have := string(Encode(sent)), string(Encode(got)); want != have {
			t.Errorf("got %s, want %s", have, want)
		}
		fd := passed[0].FD()
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a received descriptor is passed on to children (%v)", err)
		}
		pipe := passed[0].File("pipe")
		if passed[0].Close(); passed[0].FD() != noFD {
			t.Error("a descriptor that was handed over is still the packet's")
		}
		if _, err := w.WriteString("through"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		text := make([]byte, 16)
		if n, err := pipe.Read(text); string(text[:n]) != "through" {
			t.Errorf("read %q, %v", text[:n], err)
		}
		_ = pipe.Close()
	}
}

// A description made non-blocking stays so: os.File.Fd would change it for both sides.
func TestSendLeavesTheDescriptionAlone(t *testing.T) {
	near, _ := pair(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "passed")
	defer f.Close()
	if err := near.Send(Packet{ID: 1, OK: true}, f); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the passed description blocks now (%v)", err)
	}
}

// X12: whatever comes, every descriptor that rode along is closed and the connection
// is to end.
func TestX12BadPackets(t *testing.T) {
	fd := int(null(t).Fd())
	long := `{"v":1,"id":7,"ok":true,"body":"` + strings.Repeat("x", MaxPacket) + `"}`
	for name, text := range map[string]string{
		"oversized":              long,
		"far too long":           strings.Repeat(" ", 150<<10),
		"not JSON":               "RFB 003.008\n",
		"cut off":                answerText[:12],
		"two values":             answerText + answerText,
		"another version":        `{"v":2,"id":7,"ok":true}`,
		"no version":             `{"id":7,"ok":true}`,
		"nothing in it":          `{"v":1}`,
		"an answer without id":   `{"v":1,"ok":true}`,
		"an answer without word": `{"v":1,"id":7}`,
		"answer and refusal":     `{"v":1,"id":7,"ok":true,"err":{"kind":"failed"}}`,
		"request and event":      `{"v":1,"id":7,"op":"dial","event":"died"}`,
		"event with an id":       `{"v":1,"id":7,"event":"died"}`,
		"negative id":            `{"v":1,"id":-7,"ok":true}`,
		"a deep tree":            `{"v":1,"id":7,"ok":true,"body":` + strings.Repeat("[", 30000) + `}`,
		"an array":               `[1,2,3]`,
		"null":                   `null`,
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			before := openFiles(t)
			send(t, far, text, repeat(fd, 3)...)
			_, passed, err := near.Receive()
			var breach *ProtocolError
			if !errors.As(err, &breach) || passed != nil {
				t.Fatalf("got %d descriptors and %v, want a ProtocolError", len(passed), err)
			}
			if strings.Contains(err.Error(), "RFB") {
				t.Errorf("the error repeats what came: %v", err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

// X12: 253 descriptors, the most that one message can carry, all arrive and all are
// closed by whoever does not want them.
func TestX12AllDescriptorsAtOnce(t *testing.T) {
	near, far := pair(t)
	fd := int(null(t).Fd())
	before := openFiles(t)
	send(t, far, answerText, repeat(fd, maxDescriptors)...)
	packet, passed, err := near.Receive()
	if err != nil || packet.ID != 7 || len(passed) != maxDescriptors {
		t.Fatalf("received id %d with %d descriptors, %v", packet.ID, len(passed), err)
	}
	CloseAll(passed)
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// X12: more descriptors than this process may hold arrive truncated (MSG_CTRUNC). That
// ends the connection, and those that did arrive are closed.
func TestX12TruncatedDescriptors(t *testing.T) {
	near, far := pair(t)
	fd := int(null(t).Fd())
	before := openFiles(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(before + 20)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	send(t, far, answerText, repeat(fd, maxDescriptors)...)
	_, passed, err := near.Receive()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var breach *ProtocolError
	if !errors.As(err, &breach) || passed != nil {
		t.Errorf("got %d descriptors and %v, want a ProtocolError", len(passed), err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// X10: a descriptor whose close lingers holds nobody up and is counted until it is gone.
func TestX10LingeringClose(t *testing.T) {
	near, far := pair(t)
	stuck := lingering(t)
	send(t, far, answerText, stuck)
	_, passed, err := near.Receive()
	if err != nil || len(passed) != 1 {
		t.Fatalf("received %d descriptors, %v", len(passed), err)
	}
	began := time.Now()
	CloseAll(passed)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the close took %s", took)
	}
}

// lingering is a TCP socket with unsent data and SO_LINGER of 60 s: its last close
// would wait for a peer that does not read.
func lingering(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = c.Write(make([]byte, 16<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the peer read everything: %v", err)
	}
	f, err := c.(*net.TCPConn).File()
	_ = c.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.SetsockoptLinger(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = f.Close()
	})
	fd := int(f.Fd())
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A peer that does not read makes Send fail in time; nothing is sent in part.
func TestSendToAPeerThatDoesNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the send timeout of 5 s")
	}
	near, _ := pair(t)
	body, _ := json.Marshal(strings.Repeat("x", 32<<10))
	began := time.Now()
	for {
		err := near.Send(Packet{ID: 1, OK: true, Body: body})
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a deadline", err)
		}
		break
	}
	if took := time.Since(began); took > 2*sendTimeout {
		t.Errorf("gave up after %s, want %s", took, sendTimeout)
	}
}

func TestSendTooLong(t *testing.T) {
	near, _ := pair(t)
	body, _ := json.Marshal(strings.Repeat("x", MaxPacket))
	if err := near.Send(Packet{ID: 1, OK: true, Body: body}); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v, want ErrTooLong", err)
	}
}

func TestIsClosed(t *testing.T) {
	near, far := pair(t)
	_ = unix.Shutdown(far, unix.SHUT_RDWR)
	if _, _, err := near.Receive(); !IsClosed(err) {
		t.Errorf("the peer's close reads as %v", err)
	}
	near, _ = pair(t)
	_ = near.Close()
	if _, _, err := near.Receive(); !IsClosed(err) {
		t.Errorf("our own close reads as %v", err)
	}
	near, far = pair(t)
	if err := unix.Sendmsg(far, nil, nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := near.Receive(); !IsClosed(err) { // an empty packet reads like a close
		t.Errorf("an empty packet reads as %v", err)
	}
	if IsClosed(&ProtocolError{"x"}) {
		t.Error("a breach passes for an ordinary end")
	}
}
