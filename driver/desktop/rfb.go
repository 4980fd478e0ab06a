// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// rfbDoor is the only way to Xvnc's RFB listener: an O_PATH descriptor of its
// socket, whose path is gone (rule X2).
type rfbDoor struct {
	handle *os.File
	server int // pid of Xvnc
}

// closeDoorBehind opens the socket at path, removes the path and makes sure
// that nobody slipped in between Xvnc's bind and the removal.
func closeDoorBehind(path string, server int) (*rfbDoor, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold RFB socket: %w", err)
	}
	door := &rfbDoor{handle: os.NewFile(uintptr(fd), "rfb.sock"), server: server}
	if err := door.check(path); err != nil {
		_ = door.close()
		return nil, err
	}
	return door, nil
}

func (d *rfbDoor) check(path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.handle.Fd()), &stat); err != nil {
		return fmt.Errorf("hold RFB socket: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("hold RFB socket: %s is not a socket of uid %d", filepath.Base(path), os.Geteuid())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("hold RFB socket: %w", err)
	}
	others, err := boundSockets(path)
	if err != nil {
		return fmt.Errorf("hold RFB socket: %w", err)
	}
	if others > 1 { // the listener itself is one
		return &intruderError{connections: others - 1}
	}
	return nil
}

// intruderError says that a program connected before the path was removed.
type intruderError struct{ connections int }

func (e *intruderError) Error() string {
	return fmt.Sprintf("hold RFB socket: %d connections were made by somebody else", e.connections)
}

// inodeField is the inode's place in a line of /proc/net/unix, see proc(5).
const inodeField = 6

// boundSockets counts the sockets in /proc/net/unix that carry the name path:
// the listener and every connection made to it, accepted or waiting.
func boundSockets(path string) (int, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return countNamed(f, path)
}

// countNamed counts sockets, not lines: while sockets come and go elsewhere the kernel
// can list one twice between two reads. Field 7 is the inode, which tells them apart.
func countNamed(list io.Reader, path string) (int, error) {
	inodes := map[string]bool{}
	lines := bufio.NewReader(list)
	for {
		line, err := lines.ReadString('\n')
		fields := strings.Fields(line)
		if strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+path) && len(fields) > inodeField {
			inodes[fields[inodeField]] = true
		}
		if errors.Is(err, io.EOF) {
			return len(inodes), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// dial connects to Xvnc and checks that it is Xvnc that listens. The file is
// non-blocking and belongs to the caller.
func (d *rfbDoor) dial(ctx context.Context) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dial RFB: %w", err)
	}
	if err := d.connect(ctx, fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("dial RFB: %w", err)
	}
	return os.NewFile(uintptr(fd), "rfb"), nil
}

func (d *rfbDoor) connect(ctx context.Context, fd int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// connect(2) waits for room in the listener's backlog; SO_SNDTIMEO bounds it.
	limit := 5 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(limit, time.Until(deadline)))
	}
	wait := unix.NsecToTimeval(limit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return err
	}
	name := fmt.Sprintf("/proc/self/fd/%d", d.handle.Fd())
	err := ignoringEINTR(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: name}) })
	if err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{}); err != nil {
		return err
	}
	if err := peerIs(fd, d.server); err != nil {
		return err
	}
	return unix.SetNonblock(fd, true)
}

// peerIs checks by the kernel's word that the listener behind fd is process pid.
func peerIs(fd, pid int) error {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	if int(peer.Pid) != pid {
		return fmt.Errorf("peer is pid %d, want %s with pid %d", peer.Pid, nameXServer, pid)
	}
	return nil
}

// greet makes a connection and reads the server's version (RFC 6143, section
// 7.1.1): the RFB side of Xvnc answers.
func (d *rfbDoor) greet(ctx context.Context) error {
	conn, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	version := make([]byte, 12)
	if _, err := io.ReadFull(conn, version); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("await RFB version: %w", err)
	}
	if !strings.HasPrefix(string(version), "RFB ") {
		return fmt.Errorf("await RFB version: got %q", version)
	}
	return nil
}

func (d *rfbDoor) close() error { return d.handle.Close() }
