// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// acceptRFB takes a descriptor the session passed as a connection to Xvnc, or refuses
// it (X11): a connected Unix stream whose other end is the X server recorded at the
// start, never one of our own sockets. It owns f in every case.
func acceptRFB(f *os.File, xserver process.Identity, sharedPIDs bool) (net.Conn, error) {
	if err := checkStream(f); err != nil {
		discard(f)
		return nil, fmt.Errorf("accept RFB connection: %w", err)
	}
	cred, err := peerOf(f)
	if err != nil {
		discard(f)
		return nil, fmt.Errorf("accept RFB connection: %w", err)
	}
	if int(cred.Pid) == os.Getpid() {
		discard(f)
		return nil, errors.New("accept RFB connection: it leads back to this supervisor")
	}
	if sharedPIDs && (int(cred.Pid) != xserver.PID || !xserver.Alive()) {
		discard(f)
		return nil, fmt.Errorf("accept RFB connection: pid %d answers there, the X server is pid %d", cred.Pid, xserver.PID)
	}
	return newPassedConn(f)
}

// checkStream reports anything but a connected, not listening Unix stream socket.
func checkStream(f *os.File) error {
	var failure error
	err := withFD(f, func(fd int) {
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
				failure = fmt.Errorf("not a socket: %w", err)
				return
			}
			if got != want.value {
				failure = fmt.Errorf("the descriptor is not %s", want.is)
				return
			}
		}
	})
	return errors.Join(err, failure)
}

func peerOf(f *os.File) (*unix.Ucred, error) {
	var cred *unix.Ucred
	var failure error
	err := withFD(f, func(fd int) {
		cred, failure = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failure); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	return cred, nil
}

// acceptPipe takes one end of a command's pipe or terminal; anything else is refused.
func acceptPipe(f *os.File, tty bool) (*passedConn, error) {
	var stat unix.Stat_t
	var failure error
	err := withFD(f, func(fd int) { failure = unix.Fstat(fd, &stat) })
	if err := errors.Join(err, failure); err != nil {
		discard(f)
		return nil, fmt.Errorf("accept command's descriptor: %w", err)
	}
	kind := stat.Mode & unix.S_IFMT
	// 136 to 143 are the majors of Unix98 pseudo-terminals, 5 that of their multiplexer
	// (Documentation/admin-guide/devices.txt of the kernel).
	terminal := kind == unix.S_IFCHR && (unix.Major(stat.Rdev) == 5 || unix.Major(stat.Rdev) >= 136 && unix.Major(stat.Rdev) <= 143)
	if tty && !terminal || !tty && kind != unix.S_IFIFO {
		discard(f)
		return nil, errors.New("accept command's descriptor: not what was asked for")
	}
	return newPassedConn(f)
}

func withFD(f *os.File, do func(fd int)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { do(int(fd)) })
}

// discard closes a descriptor nobody wants; its sender can make the close linger.
func discard(f *os.File) { go func() { _ = f.Close() }() }

// passedConn is a net.Conn over a descriptor whose open file description the sender
// still shares. The sender can clear O_NONBLOCK at any time, after which Go's own read
// would block its thread for ever, deadline or not (X10): so each transfer says
// MSG_DONTWAIT itself, or asks poll(2) first where the descriptor is no socket.
type passedConn struct {
	file   *os.File
	raw    syscall.RawConn
	socket bool
}

func newPassedConn(f *os.File) (*passedConn, error) {
	var fd int
	var socket bool
	err := withFD(f, func(old int) {
		// A second descriptor made non-blocking before os.NewFile, so that the runtime's
		// poller watches it and deadlines work.
		fd, _ = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 0)
		_ = unix.SetNonblock(fd, true)
		_, sockErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		socket = sockErr == nil
	})
	discard(f)
	if err != nil || fd <= 0 {
		return nil, errors.Join(errors.New("adopt passed descriptor"), err)
	}
	file := os.NewFile(uintptr(fd), "passed")
	raw, err := file.SyscallConn()
	if err != nil {
		discard(file)
		return nil, fmt.Errorf("adopt passed descriptor: %w", err)
	}
	return &passedConn{file: file, raw: raw, socket: socket}, nil
}

func (c *passedConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	var n int
	var failure error
	err := c.raw.Read(func(fd uintptr) bool {
		n, failure = c.readOnce(int(fd), b)
		return !again(failure)
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failure, unix.EIO):
		return 0, io.EOF // a terminal whose last program has gone, see pty(7)
	case failure != nil:
		return 0, os.NewSyscallError("read", failure)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *passedConn) readOnce(fd int, b []byte) (int, error) {
	if c.socket {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		return n, err
	}
	if !ready(fd, unix.POLLIN) {
		return 0, unix.EAGAIN
	}
	return unix.Read(fd, b)
}

func (c *passedConn) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		var n int
		var failure error
		err := c.raw.Write(func(fd uintptr) bool {
			n, failure = c.writeOnce(int(fd), b[written:])
			return !again(failure)
		})
		if err != nil {
			return written, err
		}
		if failure != nil {
			return written, os.NewSyscallError("write", failure)
		}
		written += n
	}
	return written, nil
}

func (c *passedConn) writeOnce(fd int, b []byte) (int, error) {
	if c.socket {
		return unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if !ready(fd, unix.POLLOUT) {
		return 0, unix.EAGAIN
	}
	// A pipe that polls writable takes PIPE_BUF bytes without blocking (pipe(7)).
	const pipeBuf = 4096
	return unix.Write(fd, b[:min(len(b), pipeBuf)])
}

// ready asks whether a transfer can happen now; an error or hang-up counts, so that the
// transfer reports it.
func ready(fd int, events int16) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}

func again(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// Close returns at once: the sender may have set SO_LINGER, and can set it again, so
// the close itself happens outside of every caller (X10).
func (c *passedConn) Close() error {
	_ = c.file.SetDeadline(time.Unix(1, 0))
	if c.socket {
		_ = c.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Shutdown(int(fd), unix.SHUT_RDWR)
		})
	}
	discard(c.file)
	return nil
}

// setSize sizes the terminal, see ioctl_tty(2).
func (c *passedConn) setSize(rows, columns uint16) error {
	return withFD(c.file, func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

func (c *passedConn) LocalAddr() net.Addr                { return passedAddr{} }
func (c *passedConn) RemoteAddr() net.Addr               { return passedAddr{} }
func (c *passedConn) SetDeadline(t time.Time) error      { return c.file.SetDeadline(t) }
func (c *passedConn) SetReadDeadline(t time.Time) error  { return c.file.SetReadDeadline(t) }
func (c *passedConn) SetWriteDeadline(t time.Time) error { return c.file.SetWriteDeadline(t) }

type passedAddr struct{}

func (passedAddr) Network() string { return "passed" }
func (passedAddr) String() string  { return "passed" }
