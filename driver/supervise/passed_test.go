// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// socket is a raw one of the given kind, closed with the test.
func socket(t *testing.T, domain, kind, protocol int) *os.File {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	must(t, err)
	return ownFile(t, fd)
}

func ownFile(t *testing.T, fd int) *os.File {
	t.Helper()
	f := os.NewFile(uintptr(fd), "evil")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// evilDescriptors are the kinds a container passed in the trial of threats.md and some
// more. Each is made anew: a kind is (name, maker).
func evilDescriptors(f *fake) map[string]func(t *testing.T) *os.File {
	open := func(path string) func(t *testing.T) *os.File {
		return func(t *testing.T) *os.File {
			file, err := os.Open(path)
			must(t, err)
			t.Cleanup(func() { _ = file.Close() })
			return file
		}
	}
	fileOf := func(t *testing.T, c interface{ File() (*os.File, error) }) *os.File {
		file, err := c.File()
		must(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	return map[string]func(t *testing.T) *os.File{
		"socketpair": func(t *testing.T) *os.File {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			ownFile(t, fds[1])
			return ownFile(t, fds[0])
		},
		"pipe": func(t *testing.T) *os.File {
			r, w, err := os.Pipe()
			must(t, err)
			t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
			return r
		},
		"memory of a process": open("/proc/self/mem"),
		"directory":           open("/"),
		"regular file":        open("/proc/self/exe"),
		"device":              open("/dev/zero"),
		"terminal multiplexer": func(t *testing.T) *os.File {
			file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
			must(t, err)
			t.Cleanup(func() { _ = file.Close() })
			return file
		},
		"Unix listener": func(t *testing.T) *os.File {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: serverPath(t), Net: "unix"})
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return fileOf(t, l)
		},
		"TCP listener": func(t *testing.T) *os.File {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return fileOf(t, l)
		},
		"TCP connection": func(t *testing.T) *os.File {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return fileOf(t, c)
		},
		"netlink":            func(t *testing.T) *os.File { return socket(t, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) },
		"packets":            func(t *testing.T) *os.File { return socket(t, unix.AF_UNIX, unix.SOCK_SEQPACKET, 0) },
		"datagrams":          func(t *testing.T) *os.File { return socket(t, unix.AF_UNIX, unix.SOCK_DGRAM, 0) },
		"unconnected stream": func(t *testing.T) *os.File { return socket(t, unix.AF_UNIX, unix.SOCK_STREAM, 0) },
		"event counter": func(t *testing.T) *os.File {
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			must(t, err)
			return ownFile(t, fd)
		},
		"memory file": func(t *testing.T) *os.File { fd, err := unix.MemfdCreate("x", 0); must(t, err); return ownFile(t, fd) },
		"pidfd": func(t *testing.T) *os.File {
			fd, err := unix.PidfdOpen(os.Getpid(), 0)
			must(t, err)
			return ownFile(t, fd)
		},
		"the dial-home itself": func(t *testing.T) *os.File { return fileOf(t, f.raw) },
		"our own listener": func(t *testing.T) *os.File {
			path := serverPath(t)
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return dialServer(t, path)
		},
		"another server": func(t *testing.T) *os.File {
			path := serverPath(t)
			startHelper(t, "server", "SERVER="+path, "GREET=1").says("listening")
			return dialServer(t, path)
		},
	}
}

// X11: nothing but a connection to the recorded X server is taken for one. What else
// comes ends the dial-home, and none of it stays open.
func TestX11Descriptors(t *testing.T) {
	path := serverPath(t)
	server := startHelper(t, "server", "SERVER="+path, "GREET=1")
	server.says("listening")
	r := newRig(t, nil)
	d := r.withServer(server.identity)
	for name := range evilDescriptors(nil) {
		t.Run(name, func(t *testing.T) {
			// The first connection of all is still there in the first round.
			r.link.mu.Lock()
			if r.link.line != nil {
				_ = r.link.line.conn.Close()
			}
			r.link.mu.Unlock()
			f := r.session(d)
			evil := evilDescriptors(f)[name](t)
			before := openFiles(t)
			shot := make(chan error, 1)
			go func() {
				_, err := r.client.Screenshot(context.Background(), control.ScreenshotRequest{})
				shot <- err
			}()
			p, _ := f.asked(dialhome.OpDial)
			f.answer(p.ID, nil, evil)
			if err := <-shot; err == nil {
				t.Error("a screenshot of it was taken")
			}
			f.awaitEnd()
			_ = f.Close()
			r.client.Close() // its idle connection
			r.await("as many descriptors as before are open", func() bool { return openFiles(t) <= before })
		})
	}
	if status, err := r.client.Status(t.Context()); err != nil || status.State != screen.Ready {
		t.Errorf("the supervisor suffered: %+v, %v", status, err)
	}
	if got := len(r.passed); got != 0 {
		t.Errorf("%d slots are still taken", got)
	}
}

// X11, SEC-01: a fake RFB server after Xvnc was killed is not the recorded one, nor is what an
// heir of Xvnc's listening socket answers.
func TestX11ServerKilled(t *testing.T) {
	path := serverPath(t)
	server := startHelper(t, "server", "SERVER="+path, "GREET=1")
	server.says("listening")
	r := newRig(t, nil)
	r.withServer(server.identity)
	old := dialServer(t, path)
	must(t, server.Process.Kill())
	r.await("the server has ended", func() bool { return !server.identity.Alive() })
	must(t, os.Remove(path))
	startHelper(t, "server", "SERVER="+path, "GREET=1").says("listening")
	for name, f := range map[string]*os.File{"its old connection": old, "the fake": dialServer(t, path)} {
		slot, err := r.passed.acquire()
		must(t, err)
		if conn, err := acceptRFB(passOver(t, f), slot, server.identity); err == nil {
			_ = conn.Close()
			t.Errorf("%s was taken", name)
		}
	}
}

// passOver sends f through a dial-home connection.
func passOver(t *testing.T, f *os.File) *dialhome.Descriptor {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var conns [2]*dialhome.Conn
	for i, fd := range fds {
		end := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(end)
		must(t, err)
		_ = end.Close()
		conns[i] = dialhome.NewConn(c.(*net.UnixConn))
		defer conns[i].Close()
	}
	must(t, conns[0].Send(dialhome.Packet{ID: 1, OK: true}, f))
	_, passed, err := conns[1].Receive()
	must(t, err)
	return passed[0]
}

// hostile is a connection to a real other process whose description we, as its sender,
// still share.
func hostile(t *testing.T) (ours net.Conn, theirs *os.File, s slots) {
	t.Helper()
	path := serverPath(t)
	server := startHelper(t, "server", "SERVER="+path)
	server.says("listening")
	theirs = dialServer(t, path)
	s = newSlots()
	slot, err := s.acquire()
	must(t, err)
	ours, err = acceptRFB(passOver(t, theirs), slot, server.identity)
	must(t, err)
	return ours, theirs, s
}

// flip does with the shared description what a hostile sender would.
func flip(t *testing.T, f *os.File) {
	t.Helper()
	fd := int(f.Fd())
	must(t, unix.SetNonblock(fd, false))
	must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1<<20))
}

func TestPassedConnCarries(t *testing.T) {
	conn, _, slots := hostile(t)
	sent := strings.Repeat("0123456789abcdef", 64<<10) // more than any socket buffer
	go func() { _, _ = io.WriteString(conn, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != sent {
		t.Fatalf("what came back differs (%v)", err)
	}
	if n, err := conn.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read gives %d, %v", n, err)
	}
	_ = conn.Close()
	_ = conn.Close()
	await(t, "the slot is free", func() bool { return len(slots) == 0 })
	if _, err := conn.Read(got); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read after the close gives %v", err)
	}
}

// X10: reads and writes keep their deadlines, and Close returns at once, whatever the
// sender does to the description that it shares.
func TestX10SharedDescription(t *testing.T) {
	for name, block := range map[string]func(c net.Conn) error{
		"read":  func(c net.Conn) error { _, err := c.Read(make([]byte, 9)); return err },
		"write": func(c net.Conn) error { _, err := c.Write(make([]byte, 32<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			conn, theirs, slots := hostile(t)
			flip(t, theirs)
			must(t, conn.SetDeadline(time.Now().Add(30*time.Millisecond)))
			began := time.Now()
			if err := block(conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want a deadline", err)
			}
			must(t, conn.SetDeadline(time.Time{}))
			stuck := make(chan error, 1)
			go func() { stuck <- block(conn) }()
			flip(t, theirs) // in the middle of traffic
			_ = conn.Close()
			if err := <-stuck; err == nil {
				t.Error("it succeeded after the close")
			}
			if took := time.Since(began); took > limit/4 {
				t.Errorf("deadline and close took %s", took)
			}
			await(t, "the slot is free", func() bool { return len(slots) == 0 })
			await(t, "the goroutines have returned", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
		})
	}
}

// X12: no more than 64 passed descriptors are held at once.
func TestX12Slots(t *testing.T) {
	s := newSlots()
	var last *slot
	for range maxPassed {
		var err error
		last, err = s.acquire()
		must(t, err)
	}
	if _, err := s.acquire(); !errors.Is(err, errBusy) {
		t.Errorf("one more gives %v", err)
	}
	last.release()
	if _, err := s.acquire(); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

// X14: a connection to a service that believes in SO_PASSCRED is refused before a byte
// goes out: what this process writes would carry its own uid.
func TestX14ConfusedDeputy(t *testing.T) {
	path := serverPath(t)
	service := startHelper(t, "server", "SERVER="+path, "PASSCRED=1")
	service.says("listening")
	xserver := startHelper(t, "server", "SERVER="+filepath.Join(filepath.Dir(path), "x"))
	r := newRig(t, nil)
	r.withServer(xserver.identity)
	victim := dialServer(t, path)
	service.says("ready")
	slot, err := r.passed.acquire()
	must(t, err)
	if _, err := acceptRFB(passOver(t, victim), slot, xserver.identity); err == nil {
		t.Fatal("the connection to the service was taken")
	}
	_ = victim.Close()
	if got := service.next(); got != "end" {
		t.Errorf("the service heard %q, want nothing", got)
	}
}
