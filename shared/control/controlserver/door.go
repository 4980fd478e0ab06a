// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/crowd"
	"github.com/botscreen/botscreen/shared/screen"
)

// doorConn is a connection that knows which door it came through.
type doorConn struct {
	net.Conn
	caller Caller
	crowd  *crowd.Crowd // nil: it came by itself
}

type doorKey struct{}

func connContext(ctx context.Context, conn net.Conn) context.Context {
	if door, ok := conn.(*doorConn); ok {
		return context.WithValue(ctx, doorKey{}, door)
	}
	return ctx
}

// callerOf is the zero Caller, whom no route allows, when the connection came
// through no door.
func callerOf(ctx context.Context) Caller {
	if door, ok := ctx.Value(doorKey{}).(*doorConn); ok {
		return door.caller
	}
	return Caller{}
}

// Door is who comes through a listener and what they may do.
type Door struct {
	Role screen.Role
	// Accept refuses peers by the kernel's word; nil: everybody is accepted.
	Accept func(Caller) *control.Error
}

// entrance gives every accepted connection its role.
type entrance struct {
	net.Listener
	Door
	crowd *crowd.Crowd
}

// connState keeps each door's crowd small.
func connState(conn net.Conn, state http.ConnState) {
	if door, ok := conn.(*doorConn); ok && door.crowd != nil {
		door.crowd.State(conn, state)
	}
}

// counted tells a door's crowd of its requests.
func counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if door, ok := r.Context().Value(doorKey{}).(*doorConn); ok && door.crowd != nil {
			door.crowd.Serving(door)
		}
		handler.ServeHTTP(w, r)
	})
}

func (e entrance) Accept() (net.Conn, error) {
	conn, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	caller := Caller{Role: e.Role}
	caller.UID, caller.PID = peerOf(conn)
	if e.Door.Accept != nil {
		caller.Refusal = e.Door.Accept(caller)
	}
	return &doorConn{conn, caller, e.crowd}, nil
}

// peerOf asks the kernel who connected; -1, -1 where it does not say.
func peerOf(conn net.Conn) (uid, pid int) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, -1
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, -1
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if ctlErr != nil || err != nil {
		return -1, -1
	}
	return int(cred.Uid), int(cred.Pid)
}

// single is a listener that hands out one connection and ends when that closes.
type single struct {
	conn   chan net.Conn
	closed chan struct{}
	addr   net.Addr
	once   sync.Once
}

func newSingle(conn *doorConn) *single {
	l := &single{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: conn.LocalAddr()}
	conn.Conn = &watched{Conn: conn.Conn, closed: l.Close}
	l.conn <- conn
	return l
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	default:
	}
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

func (l *single) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *single) Addr() net.Addr { return l.addr }

// watched tells when it is closed.
type watched struct {
	net.Conn
	closed func() error
}

func (w *watched) Close() error {
	defer w.closed()
	return w.Conn.Close()
}
