// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDescriptors is SCM_MAX_FD of the kernel (unix(7)): room for as many as a
	// sender can pass, so that none arrives unseen and stays open.
	maxDescriptors = 253
	// sendTimeout bounds how long a peer that does not read can hold a sender up.
	sendTimeout = 5 * time.Second
)

// ErrTooLong says that a body does not fit into a packet.
var ErrTooLong = fmt.Errorf("longer than a packet of %d bytes", MaxPacket)

// Conn carries packets. Send may be called from several goroutines, Receive from one.
type Conn struct {
	unix *net.UnixConn

	data, oob []byte // Receive's buffers
}

// NewConn takes over a connected SOCK_SEQPACKET socket.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{
		unix: c,
		data: make([]byte, MaxPacket+1),
		oob:  make([]byte, unix.CmsgSpace(maxDescriptors*4)),
	}
}

// Close ends the connection.
func (c *Conn) Close() error { return c.unix.Close() }

// Send writes one packet; files travel as copies and stay the caller's. A peer that
// does not read makes it fail after 5 seconds; nothing is sent then.
func (c *Conn) Send(p Packet, files ...*os.File) error {
	p.V = Version
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	if len(text) > MaxPacket {
		return fmt.Errorf("send packet of %d bytes: %w", len(text), ErrTooLong)
	}
	rights, err := rightsOf(files)
	if err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	_ = c.unix.SetWriteDeadline(time.Now().Add(sendTimeout)) // fails where the write does
	// One sendmsg of a SEQPACKET socket is one packet: no lock is needed.
	_, _, err = c.unix.WriteMsgUnix(text, rights, nil)
	runtime.KeepAlive(files)
	if err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	return nil
}

// rightsOf is the control message that passes files. Their numbers are read without
// os.File.Fd, which would make them block, for the receiver too.
func rightsOf(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return nil, err
		}
	}
	return unix.UnixRights(fds...), nil
}

// Receive reads one packet and the descriptors that rode in it, which the caller owns;
// on error there are none. A truncated packet or control message is a
// *ProtocolError; see IsClosed for the end of the connection.
func (c *Conn) Receive() (Packet, []*Descriptor, error) {
	// net sets MSG_CMSG_CLOEXEC: no descriptor ever leaks into a child.
	n, oobn, flags, _, err := c.unix.ReadMsgUnix(c.data, c.oob)
	passed, parseErr := takeDescriptors(c.oob[:oobn])
	packet, err := c.judge(n, flags, errors.Join(err, parseErr))
	if err != nil {
		CloseAll(passed)
		return Packet{}, nil, err
	}
	return packet, passed, nil
}

func (c *Conn) judge(n, flags int, err error) (Packet, error) {
	switch {
	case err != nil:
		return Packet{}, err
	case flags&unix.MSG_TRUNC != 0:
		return Packet{}, &ProtocolError{"packet too long"}
	case flags&unix.MSG_CTRUNC != 0:
		// More than there is room for, or than this process may hold open.
		return Packet{}, &ProtocolError{"truncated descriptors"}
	case n == 0: // net says io.EOF itself, also for an empty packet
		return Packet{}, io.EOF
	}
	return parsePacket(c.data[:n])
}

// takeDescriptors owns every descriptor of a control message at once (rule X12). The
// message is the kernel's: it is well formed whatever the sender did.
func takeDescriptors(oob []byte) ([]*Descriptor, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, &ProtocolError{"control message"}
	}
	var passed []*Descriptor
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // not SCM_RIGHTS: carries no descriptor
		}
		for _, fd := range fds {
			passed = append(passed, newDescriptor(fd))
		}
	}
	return passed, nil
}

// IsClosed reports whether err only says that the connection ended.
func IsClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
