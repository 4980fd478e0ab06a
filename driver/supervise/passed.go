// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// maxPassed bounds the passed descriptors in use, those being closed included (X12).
const maxPassed = 64

// slots bounds what a session makes this process hold.
type slots chan struct{}

// slot is the place of one passed descriptor.
type slot struct{ of slots }

func newSlots() slots { return make(slots, maxPassed) }

func (s slots) acquire() (*slot, error) {
	select {
	case s <- struct{}{}:
		return &slot{s}, nil
	default:
		return nil, errBusy
	}
}

func (s *slot) release() { <-s.of }

// errPeerGone says that there is no peer to compare with any more.
var errPeerGone = errors.New("its peer has ended")

// acceptRFB takes a descriptor the session passed as a connection to Xvnc, the X server
// recorded at the start.
func acceptRFB(passed *dialhome.Descriptor, slot *slot, xserver process.Identity) (net.Conn, error) {
	conn, err := acceptPassed(passed, slot, xserver)
	if err != nil {
		return nil, fmt.Errorf("accept RFB connection: %w", err)
	}
	return conn, nil
}

// acceptPassed takes a descriptor the session passed, or refuses it (X11): a connected
// Unix stream whose other end is peer. It owns passed and slot in every case.
func acceptPassed(passed *dialhome.Descriptor, slot *slot, peer process.Identity) (net.Conn, error) {
	conn, err := adoptPassed(passed, slot, peer)
	passed.Close()
	if err != nil {
		slot.release()
		return nil, err
	}
	return conn, nil
}

func adoptPassed(passed *dialhome.Descriptor, slot *slot, peer process.Identity) (net.Conn, error) {
	if err := checkStream(passed.FD()); err != nil {
		return nil, err
	}
	if err := checkPeer(passed.FD(), peer); err != nil {
		return nil, err
	}
	file, err := pollable(passed)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &passedConn{file: file, raw: raw}
	c.discard = sync.OnceFunc(func() { dialhome.Discard(file, slot.release) })
	return c, nil
}

// checkStream reports anything but a connected, not listening Unix stream socket.
func checkStream(fd int) error {
	for _, want := range []struct {
		option, value int
		is            string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "a Unix socket"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "a stream"},
		{unix.SO_ACCEPTCONN, 0, "connected"},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return fmt.Errorf("not a socket: %w", err)
		}
		if got != want.value {
			return fmt.Errorf("the descriptor is not %s", want.is)
		}
	}
	return nil
}

// checkPeer reports a socket whose other end is not this process's. The kernel remembers
// who listened there, or made the pair; the start time tells a recycled pid apart.
func checkPeer(fd int, peer process.Identity) error {
	pid, err := peerOf(fd)
	switch {
	case err != nil:
		return err
	case pid == os.Getpid():
		return errors.New("it leads back to this supervisor")
	case pid <= 0:
		return errors.New("nobody is at its other end")
	case pid != peer.PID:
		return fmt.Errorf("pid %d is at its other end, it should be pid %d", pid, peer.PID)
	case !peer.Alive():
		return errPeerGone
	}
	return nil
}

func peerOf(fd int) (pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, fmt.Errorf("ask for the peer: %w", err)
	}
	return int(cred.Pid), nil
}

// pollable is a second descriptor that the runtime's poller watches, so that deadlines
// work: it is made non-blocking before the runtime sees it. The kind of what was passed
// must be known to be harmless by now.
func pollable(passed *dialhome.Descriptor) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(passed.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "passed"), nil
}

// passedConn is a net.Conn over a socket whose open file description the sender still
// shares. The sender can clear O_NONBLOCK at any time, after which Go's own read would
// block its thread for ever, deadline or not (X10): so each transfer says MSG_DONTWAIT
// itself.
type passedConn struct {
	file    *os.File
	raw     syscall.RawConn
	discard func() // once
}

func (c *passedConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	var n int
	var failure error
	err := c.raw.Read(func(fd uintptr) bool {
		n, failure = retry(func() (int, error) {
			n, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			return n, err
		})
		return !errors.Is(failure, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, waitError(err)
	case failure != nil:
		return 0, os.NewSyscallError("recvfrom", failure)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *passedConn) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		var n int
		var failure error
		err := c.raw.Write(func(fd uintptr) bool {
			n, failure = retry(func() (int, error) {
				return unix.SendmsgN(int(fd), b[written:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			})
			return !errors.Is(failure, unix.EAGAIN)
		})
		if err != nil {
			return written, waitError(err)
		}
		if failure != nil {
			return written, os.NewSyscallError("sendmsg", failure)
		}
		written += n
	}
	return written, nil
}

// waitError is why the poller did not wait: the deadline, or else our own close.
func waitError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return net.ErrClosed
}

// retry repeats what a signal interrupted: the poller would not wake for it.
func retry(transfer func() (int, error)) (int, error) {
	for {
		if n, err := transfer(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Close returns at once: the sender may have set SO_LINGER, and can set it again, so
// the close itself happens outside of every caller (X10).
func (c *passedConn) Close() error {
	_ = c.file.SetDeadline(time.Unix(1, 0)) // wakes whoever waits
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	c.discard()
	return nil
}

func (c *passedConn) LocalAddr() net.Addr                { return passedAddr{} }
func (c *passedConn) RemoteAddr() net.Addr               { return passedAddr{} }
func (c *passedConn) SetDeadline(t time.Time) error      { return c.file.SetDeadline(t) }
func (c *passedConn) SetReadDeadline(t time.Time) error  { return c.file.SetReadDeadline(t) }
func (c *passedConn) SetWriteDeadline(t time.Time) error { return c.file.SetWriteDeadline(t) }

type passedAddr struct{}

func (passedAddr) Network() string { return "passed" }
func (passedAddr) String() string  { return "passed" }
