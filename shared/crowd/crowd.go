// SPDX-License-Identifier: MPL-2.0

// Package crowd bounds how many connections a door of an HTTP server holds, so that
// whoever opens a thousand and says nothing takes no descriptors from the others.
package crowd

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Crowd is the connections of one door. When there are too many, the one goes that has
// waited longest without a request: of a flood of silent ones each displaces another,
// and somebody who asks at once is hardly met. A connection whose request is being
// answered is never ended, and where all are, a new one is refused. A connection that
// was hijacked counts no longer.
type Crowd struct {
	most int

	mu      sync.Mutex // guards all below
	waiting []net.Conn // for a request, the longest first
	serving map[net.Conn]struct{}
}

// New bounds a door to so many connections.
func New(most int) *Crowd { return &Crowd{most: most, serving: map[net.Conn]struct{}{}} }

// Bound makes server hold at most so many connections. The server must have no
// ConnState and no ConnContext of its own.
func Bound(server *http.Server, most int) {
	c, handler := New(most), server.Handler
	server.ConnState = c.State
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, key{}, conn)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(key{}).(net.Conn); ok {
			c.Serving(conn)
		}
		handler.ServeHTTP(w, r)
	})
}

type key struct{}

// State is for http.Server's ConnState.
func (c *Crowd) State(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if excess := c.come(conn); excess != nil {
			end(excess)
		}
	case http.StateIdle:
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.serving[conn]; ok {
			delete(c.serving, conn)
			c.waiting = append(c.waiting, conn)
		}
	case http.StateHijacked, http.StateClosed:
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.serving, conn)
		c.forget(conn)
	}
}

// Serving says that the connection's request has come, up to its body.
func (c *Crowd) Serving(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forget(conn) { // otherwise it is being ended
		c.serving[conn] = struct{}{}
	}
}

// come returns the connection that has to go for this one, or this one.
func (c *Crowd) come(conn net.Conn) (excess net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting)+len(c.serving) >= c.most {
		if len(c.waiting) == 0 {
			return conn
		}
		excess = c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
	}
	c.waiting = append(c.waiting, conn)
	return excess
}

// forget needs mu. It reports whether the connection was waiting.
func (c *Crowd) forget(conn net.Conn) bool {
	i := slices.Index(c.waiting, conn)
	if i < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return true
}

// end closes at once: TLS would first send a farewell that nobody may read.
func end(conn net.Conn) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}
