// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// ServeWeb serves one viewer on a connection that carries HTTP, such as an exec stream to
// a helper that has a browser at its other end: the WebSocket at PathView, for a viewer
// whose door has decided what it may do, and nothing else. It owns conn and returns when
// that is closed and the lease has heard how the viewer ended.
func (r *Relay) ServeWeb(ctx context.Context, conn net.Conn, grant ticket.Grant) {
	mux := http.NewServeMux()
	viewer := r.Vouched(grant)
	viewing := make(chan struct{}, 1) // has room for the request that is served
	mux.HandleFunc("GET "+PathView, func(w http.ResponseWriter, req *http.Request) {
		viewing <- struct{}{}
		defer func() { <-viewing }()
		viewer.ServeHTTP(w, req)
	})
	server := serverFor(ctx, mux, r.log)
	ln := newOnce(conn)
	// Closing the server does not reach a connection that has become a WebSocket.
	defer context.AfterFunc(ctx, func() { server.Close(); conn.Close() })()
	server.Serve(ln) // its error is the end of ln
	// The server does not wait for a connection that has become a WebSocket.
	viewing <- struct{}{}
}

// once is a listener that hands out one connection and ends when that is closed.
type once struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
	end    func()
}

func newOnce(conn net.Conn) *once {
	l := &once{conns: make(chan net.Conn, 1), closed: make(chan struct{}), addr: conn.LocalAddr()}
	l.end = sync.OnceFunc(func() { close(l.closed) })
	l.conns <- &onceConn{conn, l.end}
	return l
}

func (l *once) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	default:
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *once) Close() error   { l.end(); return nil }
func (l *once) Addr() net.Addr { return l.addr }

type onceConn struct {
	net.Conn
	closed func()
}

func (c *onceConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
