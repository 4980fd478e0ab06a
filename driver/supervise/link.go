// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// maxOutstanding bounds the requests in flight, and with them the descriptors a
	// session may pass (X12).
	maxOutstanding = 64
	// eventsPerSecond bounds what a session may report; a real one sends a few a minute.
	eventsPerSecond = 50
)

var (
	errNoSession = errors.New("the session is not connected")
	errBusy      = errors.New("too many requests to the session at once")
	errUnasked   = &dialhome.ProtocolError{Reason: "an answer nobody asked for"}
)

// link is the supervisor's end of the dial-home connection. It accepts only the
// process that the isolation launched, by the kernel's word (X13), and treats every
// packet as hostile (X10 to X12).
type link struct {
	session process.Identity
	log     hclog.Logger
	onEvent func(dialhome.Packet)

	mu        sync.Mutex // guards all below
	conn      *dialhome.Conn
	next      uint64
	pending   map[uint64]*request
	connected chan struct{} // closed while conn is set
	refused   int           // connections of strangers
}

type request struct {
	files  int // how many descriptors the answer may carry
	answer chan answer
}

type answer struct {
	packet dialhome.Packet
	files  []*os.File
	err    error
}

func newLink(session process.Identity, log hclog.Logger, onEvent func(dialhome.Packet)) *link {
	return &link{
		session: session, log: log, onEvent: onEvent,
		pending: map[uint64]*request{}, connected: make(chan struct{}),
	}
}

// serve accepts on the dial-home socket until it is closed.
func (l *link) serve(listener *net.UnixListener) error {
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept session: %w", err)
		}
		if reason := l.refusal(c); reason != "" {
			l.refuse(c, reason)
			continue
		}
		go l.run(dialhome.NewConn(c))
	}
}

// refusal says why the peer of c is not our session; empty when it is.
func (l *link) refusal(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return "closed"
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return "no credentials"
	}
	// The credentials are those of connect(); the start time tells a recycled pid apart.
	if int(cred.Pid) != l.session.PID || !l.session.Alive() {
		return fmt.Sprintf("pid %d uid %d is not the session", cred.Pid, cred.Uid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		return "the session is connected already"
	}
	return ""
}

func (l *link) refuse(c *net.UnixConn, reason string) {
	_ = c.Close()
	l.mu.Lock()
	l.refused++
	first := l.refused == 1
	l.mu.Unlock()
	if first { // a flood must not fill the log
		l.log.Warn("refused a dial-home connection; further ones are only counted", "reason", reason)
	}
}

// run reads one connection to its end.
func (l *link) run(conn *dialhome.Conn) {
	l.mu.Lock()
	if l.conn != nil {
		l.mu.Unlock()
		_ = conn.Close()
		return
	}
	l.conn = conn
	close(l.connected)
	l.mu.Unlock()

	err := l.read(conn)
	_ = conn.Close()

	l.mu.Lock()
	l.conn = nil
	l.connected = make(chan struct{})
	pending := l.pending
	l.pending = map[uint64]*request{}
	l.mu.Unlock()
	for _, r := range pending {
		r.answer <- answer{err: errNoSession} // has room for one
	}
	if !dialhome.IsClosed(err) {
		l.log.Warn("ended the dial-home connection", "error", err)
	}
}

func (l *link) read(conn *dialhome.Conn) error {
	window, events := time.Now(), 0
	for {
		packet, files, err := conn.Receive()
		if err != nil {
			return err
		}
		if packet.Event == "" {
			if err := l.deliver(packet, files); err != nil {
				return err
			}
			continue
		}
		if len(files) > 0 {
			dialhome.CloseAll(files)
			return &dialhome.ProtocolError{Reason: "an event with descriptors"}
		}
		if now := time.Now(); now.Sub(window) > time.Second {
			window, events = now, 0
		}
		if events++; events > eventsPerSecond {
			return &dialhome.ProtocolError{Reason: "too many events"}
		}
		l.onEvent(packet)
	}
}

// deliver hands an answer to whoever asked; the files become the asker's.
func (l *link) deliver(packet dialhome.Packet, files []*os.File) error {
	l.mu.Lock()
	r := l.pending[packet.ID]
	delete(l.pending, packet.ID)
	l.mu.Unlock()
	if r == nil {
		dialhome.CloseAll(files)
		return errUnasked
	}
	wanted := r.files
	if !packet.OK {
		wanted = 0
	}
	if len(files) != wanted {
		dialhome.CloseAll(files)
		err := &dialhome.ProtocolError{Reason: fmt.Sprintf("%d descriptors in an answer that has %d", len(files), wanted)}
		r.answer <- answer{err: err}
		return err
	}
	r.answer <- answer{packet: packet, files: files}
	return nil
}

// call asks the session and waits for its answer, with exactly want descriptors. The
// caller owns them. A refusal by the session is a *dialhome.Error.
func (l *link) call(ctx context.Context, op dialhome.Op, body any, want int, files ...*os.File) (dialhome.Packet, []*os.File, error) {
	r := &request{files: want, answer: make(chan answer, 1)}
	id, conn, err := l.register(ctx, r)
	if err != nil {
		return dialhome.Packet{}, nil, fmt.Errorf("ask session to %s: %w", op, err)
	}
	packet := dialhome.Packet{ID: id, Op: op, Body: dialhome.Encode(body)}
	if err := conn.Send(packet, files...); err != nil {
		l.forget(id)
		return dialhome.Packet{}, nil, fmt.Errorf("ask session to %s: %w", op, err)
	}
	select {
	case a := <-r.answer:
		if a.err != nil {
			return dialhome.Packet{}, nil, fmt.Errorf("ask session to %s: %w", op, a.err)
		}
		if !a.packet.OK {
			return a.packet, nil, refusalOf(a.packet)
		}
		return a.packet, a.files, nil
	case <-ctx.Done():
		abandon(r)
		return dialhome.Packet{}, nil, fmt.Errorf("ask session to %s: %w", op, context.Cause(ctx))
	}
}

// refusalOf keeps a hostile session from answering with neither result nor error.
func refusalOf(p dialhome.Packet) *dialhome.Error {
	if p.Err == nil {
		return &dialhome.Error{Kind: dialhome.KindFailed, Message: "the session refused without a reason"}
	}
	return p.Err
}

// register waits for the session to be connected and reserves an id.
func (l *link) register(ctx context.Context, r *request) (uint64, *dialhome.Conn, error) {
	for {
		l.mu.Lock()
		if l.conn != nil {
			defer l.mu.Unlock()
			if len(l.pending) >= maxOutstanding {
				return 0, nil, errBusy
			}
			l.next++
			l.pending[l.next] = r
			return l.next, l.conn, nil
		}
		connected := l.connected
		l.mu.Unlock()
		select {
		case <-connected:
		case <-ctx.Done():
			return 0, nil, errNoSession
		}
	}
}

func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

// abandon leaves the id registered, so that a late answer is not taken for an unasked
// one, and closes what comes with it.
func abandon(r *request) {
	go func() {
		a := <-r.answer // run answers everything that is pending when the session goes
		dialhome.CloseAll(a.files)
	}()
}
