// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Version is the "v" of every packet.
const Version = 1

const (
	// MaxPacket bounds one packet, in bytes.
	MaxPacket = 64 << 10
	// maxDescriptors is SCM_MAX_FD of the kernel (unix(7)): room for as many as a
	// sender can pass, so that none arrives unseen and stays open.
	maxDescriptors = 253
)

// Op is what the supervisor asks of the session.
type Op string

// The operations of wire.md section 3.
const (
	OpStart  Op = "start"  // bring the desktop up; the first start carries the plan as a memfd
	OpDial   Op = "dial"   // open a connection to Xvnc and pass it out
	OpExec   Op = "exec"   // run a command; its descriptors come back
	OpSignal Op = "signal" // signal a command, or the desktop where no command is named
	OpStop   Op = "stop"   // end the desktop and then the session
)

// Event is what a session reports by itself.
type Event string

// The events of wire.md section 3.
const (
	EventHello     Event = "hello" // first packet after each dial: what runs already
	EventXServer   Event = "xserver_ready"
	EventWM        Event = "wm_ready"
	EventPainted   Event = "painted"
	EventFence     Event = "fence"
	EventRestarted Event = "restarted"
	EventGaveUp    Event = "gave_up"
	EventExited    Event = "exited" // a command that exec started has ended
	EventDied      Event = "died"   // the desktop has ended; the session follows
)

// Packet is one message: a request (ID and Op), an answer (ID and OK or Err) or an
// event (Event).
type Packet struct {
	V     int             `json:"v"`
	ID    uint64          `json:"id,omitempty"`
	Op    Op              `json:"op,omitempty"`
	Event Event           `json:"event,omitempty"`
	OK    bool            `json:"ok,omitempty"`
	Err   *Error          `json:"err,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Kind sorts the errors a session answers with.
type Kind string

// Error kinds.
const (
	KindFailed       Kind = "failed"
	KindDisplayTaken Kind = "display_taken"
	KindMissing      Kind = "missing_programs"
	KindNotFound     Kind = "not_found" // no such command
	KindState        Kind = "state"     // not possible in the session's state
)

// Error is a refusal or failure the session reports.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Conn carries packets. Send may be called from several goroutines, Receive from one.
type Conn struct{ unix *net.UnixConn }

// NewConn takes over a connected SOCK_SEQPACKET socket.
func NewConn(c *net.UnixConn) *Conn { return &Conn{unix: c} }

// Close ends the connection.
func (c *Conn) Close() error { return c.unix.Close() }

// Send writes one packet; files travel as copies and stay the caller's.
func (c *Conn) Send(p Packet, files ...*os.File) error {
	p.V = Version
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	if len(text) > MaxPacket {
		return fmt.Errorf("send packet: %d bytes, at most %d", len(text), MaxPacket)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	// One sendmsg of a SEQPACKET socket is one packet: no lock is needed.
	if _, _, err := c.unix.WriteMsgUnix(text, oob, nil); err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	return nil
}

// ProtocolError says that the peer broke the wire; the connection must end.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "dial-home protocol: " + e.Reason }

// Receive reads one packet and the descriptors that rode in it. The caller owns the
// files; on error there are none. A truncated packet or control message is a
// ProtocolError, the peer's close is net.ErrClosed or io.EOF.
func (c *Conn) Receive() (Packet, []*os.File, error) {
	data := make([]byte, MaxPacket+1)
	oob := make([]byte, unix.CmsgSpace(maxDescriptors*4))
	// net sets MSG_CMSG_CLOEXEC: no descriptor ever leaks into a child.
	n, oobn, flags, _, err := c.unix.ReadMsgUnix(data, oob)
	files, parseErr := takeFiles(oob[:oobn])
	if err == nil {
		err = parseErr
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = &ProtocolError{"truncated packet"}
	}
	var packet Packet
	if err == nil {
		packet, err = parsePacket(data[:n])
	}
	if err != nil {
		CloseAll(files)
		return Packet{}, nil, err
	}
	return packet, files, nil
}

func parsePacket(text []byte) (Packet, error) {
	if len(text) == 0 {
		return Packet{}, errEOF // a SEQPACKET peer that closed reads as an empty packet
	}
	if len(text) > MaxPacket {
		return Packet{}, &ProtocolError{"packet too long"}
	}
	var p Packet
	if err := json.Unmarshal(text, &p); err != nil {
		return Packet{}, &ProtocolError{"not JSON"} // the text may hold anything: it is not repeated
	}
	if p.V != Version {
		return Packet{}, &ProtocolError{fmt.Sprintf("version %d, want %d", p.V, Version)}
	}
	return p, nil
}

// takeFiles owns every descriptor of a control message at once (rule X12).
func takeFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, &ProtocolError{"control message"}
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // not SCM_RIGHTS: carries no descriptor
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// CloseAll closes what was received and is not wanted. A passed descriptor may be
// made to linger by its sender (X10), so nobody waits for the closes.
func CloseAll(files []*os.File) {
	for _, f := range files {
		go func() { _ = f.Close() }()
	}
}

var errEOF = errors.New("dial-home: the peer closed")

// IsClosed reports whether err only says that the connection ended.
func IsClosed(err error) bool {
	return errors.Is(err, errEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
