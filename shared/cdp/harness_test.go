// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// limit bounds every wait of these tests; none takes nearly as long.
const limit = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// message is what tests read and write.
type message struct {
	ID      *int            `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// browser plays a browser at the far end of its pipe: it attaches and detaches as a real
// one and hands everything else to its test.
type browser struct {
	t     testing.TB
	conn  net.Conn
	calls chan message // what is not answered by itself

	writing sync.Mutex

	mu       sync.Mutex // guards all below
	attached int
	held     bool        // detaching is not answered
	gone     chan string // sessions that were detached
}

func newBrowser(t testing.TB) (*Mux, *browser) {
	near, far := net.Pipe()
	b := &browser{t: t, conn: far, calls: make(chan message, 100), gone: make(chan string, 100)}
	m := New(near)
	go b.run()
	t.Cleanup(func() { _ = far.Close(); <-m.Done() })
	return m, b
}

func (b *browser) run() {
	for r := bufio.NewReaderSize(b.conn, 1<<20); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var msg message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &msg); err != nil {
			b.t.Errorf("the browser got %.200q: %v", text, err)
			return
		}
		b.handle(msg)
	}
}

func (b *browser) handle(msg message) {
	switch msg.Method {
	case "Target.attachToBrowserTarget", "Target.attachToTarget":
		b.mu.Lock()
		b.attached++
		child := fmt.Sprintf("S%d", b.attached)
		b.mu.Unlock()
		b.event(msg.Session, "Target.attachedToTarget", map[string]any{"sessionId": child, "targetInfo": map[string]any{"type": "page"}})
		b.answer(msg, map[string]string{"sessionId": child})
	case "Target.detachFromTarget":
		var p struct{ SessionID string }
		_ = json.Unmarshal(msg.Params, &p)
		b.gone <- p.SessionID
		b.mu.Lock()
		held := b.held
		b.mu.Unlock()
		if !held {
			b.event(msg.Session, "Target.detachedFromTarget", p)
			b.answer(msg, struct{}{})
		} else {
			b.calls <- msg
		}
	case "Browser.getVersion":
		b.answer(msg, map[string]string{"product": "Chrome/1.2.3", "protocolVersion": "1.3", "userAgent": "UA"})
	case "Target.getTargets":
		b.answer(msg, map[string]any{"targetInfos": []any{map[string]any{"targetId": "T1", "type": "page", "title": "A \"page\" <b>", "url": "http://site.example/?q=1&r=2"}}})
	default:
		b.calls <- msg
	}
}

func (b *browser) send(msg message) { b.raw(encode(b.t, msg)) }

func (b *browser) raw(text []byte) {
	b.writing.Lock()
	defer b.writing.Unlock()
	_, _ = b.conn.Write(append(bytes.Clone(text), 0)) // a mux that has ended reads nothing
}

func (b *browser) event(session, method string, params any) {
	b.send(message{Method: method, Params: encode(b.t, params), Session: session})
}

func (b *browser) answer(to message, result any) {
	b.send(message{ID: to.ID, Result: encode(b.t, result), Session: to.Session})
}

// called is the next command that the browser does not answer by itself.
func (b *browser) called(method string) message {
	b.t.Helper()
	select {
	case msg := <-b.calls:
		if msg.Method != method {
			b.t.Fatalf("the browser is asked for %s, want %s", msg.Method, method)
		}
		return msg
	case <-time.After(limit):
		b.t.Fatalf("the browser is not asked for %s", method)
		return message{}
	}
}

func encode(t testing.TB, v any) json.RawMessage {
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

// connect is a connection that m serves; served is closed when Serve has returned.
func connect(t testing.TB, m *Mux) (conn *net.UnixConn, served <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	must(t, err)
	far, err := l.Accept()
	must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Serve(far) }()
	t.Cleanup(func() {
		_ = near.Close()
		wait(t, done, "the connection is not served to its end")
	})
	return near.(*net.UnixConn), done
}

func wait(t testing.TB, done <-chan struct{}, or string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal(or)
	}
}

// over is an HTTP client that has one connection.
func over(conn net.Conn) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
}

// program is a client of the protocol.
type program struct {
	t    testing.TB
	conn *net.UnixConn
	ws   *websocket.Conn
	end  <-chan struct{}
	last int
}

func join(t testing.TB, m *Mux, path string) *program {
	t.Helper()
	conn, served := connect(t, m)
	ws, _, err := websocket.Dial(t.Context(), "ws://127.0.0.1:1"+path, &websocket.DialOptions{HTTPClient: over(conn)})
	must(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &program{t: t, conn: conn, ws: ws, end: served}
}

func (p *program) write(text string) {
	p.t.Helper()
	must(p.t, p.ws.Write(p.t.Context(), websocket.MessageText, []byte(text)))
}

func (p *program) read() message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	_, text, err := p.ws.Read(ctx)
	must(p.t, err)
	var msg message
	if err := json.Unmarshal(text, &msg); err != nil {
		p.t.Fatalf("%.300q: %v", text, err)
	}
	return msg
}

// call waits for the answer, over all events.
func (p *program) call(session, method string, params any) message {
	p.t.Helper()
	p.last++
	id := p.last
	p.write(string(encode(p.t, message{ID: &id, Method: method, Params: encode(p.t, params), Session: session})))
	for {
		if msg := p.read(); msg.ID != nil && *msg.ID == id {
			return msg
		}
	}
}
