// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"context"
	"encoding/binary"
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
	bound, err := boundSockets(path)
	switch {
	case err != nil:
		return fmt.Errorf("hold RFB socket: %w", err)
	case bound.listeners > 1:
		return &earlierServerError{path}
	case bound.connections > 0:
		return &intruderError{bound.connections}
	}
	return nil
}

// intruderError says that a program connected before the path was removed.
type intruderError struct{ connections int }

func (e *intruderError) Error() string {
	return fmt.Sprintf("hold RFB socket: %d connections were made by somebody else", e.connections)
}

// earlierServerError says that an X server of this screen runs which nobody has ended, as
// when the records of the driver were removed while it ran. Its connections cannot be told
// from an intruder's.
type earlierServerError struct{ path string }

func (e *earlierServerError) Error() string {
	return "hold RFB socket: an earlier desktop of this screen still runs: another " + nameXServer + " listens at " + e.path + "; end it (pgrep -f " + e.path + " shows it)"
}

// bound are the sockets that carry a name.
type bound struct {
	listeners   int
	connections int // made to one of them, accepted or waiting
}

// Places in a line of /proc/net/unix, see proc(5), and what stands in it for a listener:
// the kernel's __SO_ACCEPTCON.
const (
	flagsField = 3
	inodeField = 6
	flagListen = "00010000"
)

// boundSockets counts the sockets in /proc/net/unix that carry the name path.
func boundSockets(path string) (bound, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return bound{}, err
	}
	defer f.Close()
	return countNamed(f, path)
}

// countNamed counts sockets, not lines: while sockets come and go elsewhere the kernel
// can list one twice between two reads. Field 7 is the inode, which tells them apart.
func countNamed(list io.Reader, path string) (b bound, err error) {
	inodes := map[string]bool{}
	lines := bufio.NewReader(list)
	for {
		line, err := lines.ReadString('\n')
		fields := strings.Fields(line)
		named := strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+path) && len(fields) > inodeField
		if named && !inodes[fields[inodeField]] {
			inodes[fields[inodeField]] = true
			if fields[flagsField] == flagListen {
				b.listeners++
			} else {
				b.connections++
			}
		}
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return bound{}, err
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

// greet makes a connection and shakes hands (RFC 6143, section 7.1 to 7.3): the RFB side
// of Xvnc answers. It also presses the first key there is, see firstKey.
func (d *rfbDoor) greet(ctx context.Context) error {
	conn, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = shakeHands(conn)
	if err == nil {
		err = firstKey(conn)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func shakeHands(conn io.ReadWriter) error {
	version := make([]byte, 12)
	if _, err := io.ReadFull(conn, version); err != nil {
		return fmt.Errorf("await RFB version: %w", err)
	}
	if !strings.HasPrefix(string(version), "RFB ") {
		return fmt.Errorf("await RFB version: got %q", version)
	}
	for _, step := range []struct {
		say    string
		answer int // bytes
	}{
		{"RFB 003.008\n", 2}, // one security type: SecurityTypes is None
		{"\x01", 4},          // its result
		{"\x01", 24},         // ServerInit, up to its name; we share
	} {
		answer := make([]byte, step.answer)
		if _, err := io.WriteString(conn, step.say); err != nil {
			return fmt.Errorf("shake hands with %s: %w", nameXServer, err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return fmt.Errorf("shake hands with %s: %w", nameXServer, err)
		}
		if step.answer == 24 {
			name := int64(binary.BigEndian.Uint32(answer[20:]))
			if _, err := io.CopyN(io.Discard, conn, name); err != nil {
				return fmt.Errorf("shake hands with %s: %w", nameXServer, err)
			}
		}
	}
	return nil
}

// firstKey taps Shift and waits until Xvnc has seen it. A character that is on no key is
// given one by Xvnc when it is typed, but with the first key event of its life it throws
// away what it gave before: of a text that begins with two such characters the second
// would come twice. Nobody is there yet to notice the key.
func firstKey(conn io.ReadWriter) error {
	const messages = "\x04\x01\x00\x00\x00\x00\xff\xe1" + // KeyEvent: Shift down
		"\x04\x00\x00\x00\x00\x00\xff\xe1" + // and up
		"\x03\x00\x00\x00\x00\x00\x00\x01\x00\x01" // FramebufferUpdateRequest: one pixel, which comes after both
	if _, err := io.WriteString(conn, messages); err != nil {
		return fmt.Errorf("press the first key: %w", err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return fmt.Errorf("press the first key: %w", err)
	}
	return nil
}

func (d *rfbDoor) close() error { return d.handle.Close() }
