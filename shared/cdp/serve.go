// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// PrefixHeader is the request header in which whoever forwards a connection names the path
// under which its clients reach the endpoint, such as /a1b2. The addresses in the answers
// are made of it and of Host.
const PrefixHeader = "Botscreen-Prefix"

// CurrentBrowser stands for the id of whichever browser runs, in the path of its WebSocket:
// an address with it stays good when the browser was started anew.
const CurrentBrowser = "current"

// openTimeout bounds what is asked of the browser for a request.
const openTimeout = 15 * time.Second

// newBrowserID is as the browser's own are: a version 4 UUID (RFC 9562).
func newBrowserID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
}

// Serve serves one connection as the browser's debugging port would: HTTP/1.1 with the
// /json endpoints, and the WebSockets /devtools/browser/ID and /devtools/page/ID. It owns
// conn, and returns nil when that has ended or the browser has.
//
// When the far end closes its direction of conn, or all of it, the client is detached
// first, and only when the browser has ended what it attached is conn closed: the end that
// the far side reads says that nothing of this client goes on. A browser that does not
// answer is waited for 2 s.
func (m *Mux) Serve(conn net.Conn) error {
	defer conn.Close()
	select {
	case <-m.done:
		return ErrClosed
	default:
	}
	held := &heldConn{Conn: conn, ended: make(chan struct{})}
	serving := make(chan struct{}, 1) // has room for the request that is served
	stop := make(chan struct{})
	defer close(stop)
	handler := m.handler()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case serving <- struct{}{}:
				defer func() { <-serving }()
				handler.ServeHTTP(w, r)
			case <-stop: // it has ended meanwhile
			}
		}),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    log.New(io.Discard, "", 0), // what clients do wrong they are told
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, heldKey{}, held) },
	}
	go func() { // an idle connection hears of the browser's end too
		select {
		case <-m.done:
			select {
			case serving <- struct{}{}:
				held.Close()
				<-serving
			case <-stop:
			}
		case <-stop:
		}
	}()
	_ = server.Serve(&oneConn{conn: held}) // its error is the end of held
	// The server does not wait for a connection that has become a WebSocket.
	serving <- struct{}{}
	return nil
}

type heldKey struct{}

// heldConn is a connection that closing ends for its users, but not yet for its far end.
type heldConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}

	mu       sync.Mutex // guards all below
	progress func()     // called when the far end took something
}

// Close wakes whoever reads or writes.
func (h *heldConn) Close() error {
	h.once.Do(func() {
		_ = h.Conn.SetDeadline(time.Unix(1, 0))
		close(h.ended)
	})
	return nil
}

func (h *heldConn) onProgress(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = f
}

// Write writes in pieces, so that progress is seen within a large message.
func (h *heldConn) Write(b []byte) (int, error) {
	const piece = 64 << 10
	h.mu.Lock()
	progress := h.progress
	h.mu.Unlock()
	written := 0
	for {
		n, err := h.Conn.Write(b[written:min(len(b), written+piece)])
		written += n
		if n > 0 && progress != nil {
			progress()
		}
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// SetDeadline and its kin keep a connection that has ended so.
func (h *heldConn) SetDeadline(t time.Time) error      { return h.set(h.Conn.SetDeadline, t) }
func (h *heldConn) SetReadDeadline(t time.Time) error  { return h.set(h.Conn.SetReadDeadline, t) }
func (h *heldConn) SetWriteDeadline(t time.Time) error { return h.set(h.Conn.SetWriteDeadline, t) }

func (h *heldConn) set(set func(time.Time) error, t time.Time) error {
	err := set(t)
	select {
	case <-h.ended: // after what was set, whoever was first
		return set(time.Unix(1, 0))
	default:
		return err
	}
}

// oneConn is a listener that hands out one connection and ends with it.
type oneConn struct {
	conn *heldConn
	once sync.Once
}

func (l *oneConn) Accept() (conn net.Conn, err error) {
	l.once.Do(func() { conn = l.conn })
	if conn != nil {
		return conn, nil
	}
	<-l.conn.ended
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return l.conn.Close() }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// socket serves a WebSocket that drives the target, or the browser where that is "".
func (m *Mux) socket(w http.ResponseWriter, r *http.Request, target string) {
	if !m.enter() {
		http.Error(w, fmt.Sprintf("Too many clients at once: %d is the most.", maxClients), http.StatusServiceUnavailable)
		return
	}
	defer m.leave()
	ctx, cancel := context.WithTimeout(r.Context(), openTimeout)
	defer cancel()
	c, err := m.attach(ctx, target)
	if err != nil {
		refuseTarget(w, err)
		return
	}
	defer c.detach()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // foreign has verified
	if err != nil {
		return // Accept has answered
	}
	defer ws.CloseNow()
	if held, ok := r.Context().Value(heldKey{}).(*heldConn); ok {
		held.onProgress(c.box.progress)
	}
	c.serve(ws)
}

func refuseTarget(w http.ResponseWriter, err error) {
	var refused *Error
	switch {
	case errors.Is(err, errNoTarget) || errors.As(err, &refused):
		http.Error(w, "There is no such page; /json/list has those that there are.", http.StatusNotFound)
	default:
		http.Error(w, "The browser does not answer: "+err.Error()+".", http.StatusBadGateway)
	}
}

func (m *Mux) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients == maxClients {
		return false
	}
	m.clients++
	return true
}

func (m *Mux) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients--
}
