// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// door is a relay behind HTTP.
type door struct {
	*world
	url    string
	client *http.Client
}

func newDoor(t testing.TB, change ...func(*Options)) *door {
	t.Helper()
	w := newWorld(t, change...)
	server := httptest.NewServer(w.Relay)
	t.Cleanup(server.Close)
	return &door{w, server.URL, server.Client()}
}

// memoryDoor is one inside a synctest bubble.
func memoryDoor(t testing.TB, change ...func(*Options)) (d *door, end func()) {
	w := newWorld(t, change...)
	ln := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: w.Relay}
	go server.Serve(ln)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: ln.dial}}
	return &door{w, "http://127.0.0.1", client}, func() { w.Close(); server.Close() }
}

// memory is a listener without a network.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case m.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error { m.once.Do(func() { close(m.done) }); return nil }

func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (d *door) mint(t testing.TB, v lease.ViewerID, mode ticket.Mode) ticket.Secret {
	t.Helper()
	m, err := d.tickets.Mint(t.Name()+string(v), ticket.Grant{Viewer: v, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return m.Secret
}

// open connects with a ticket; the close code is what Read returns later.
func (d *door) open(t testing.TB, secret ticket.Secret, change ...func(*websocket.DialOptions)) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	options := &websocket.DialOptions{HTTPClient: d.client, Subprotocols: []string{ProtocolBinary, ProtocolTicket + string(secret)}}
	for _, c := range change {
		c(options)
	}
	conn, resp, err := websocket.Dial(t.Context(), d.url, options)
	if conn != nil {
		conn.SetReadLimit(-1)
		t.Cleanup(func() { conn.CloseNow() })
	}
	return conn, resp, err
}

// page is a viewer over a WebSocket after its handshake. Frames come in seen.
type page struct {
	conn  *websocket.Conn
	texts chan map[string]any
	end   chan websocket.StatusCode // what its reader ended with

	mu   sync.Mutex // guards seen
	seen bytes.Buffer
}

func leaseProtocol(o *websocket.DialOptions) { o.Subprotocols[0] = ProtocolLease }

func (d *door) visit(t testing.TB, v lease.ViewerID, mode ticket.Mode, change ...func(*websocket.DialOptions)) *page {
	t.Helper()
	return d.enter(t, v, d.mint(t, v, mode), change...)
}

func (d *door) enter(t testing.TB, v lease.ViewerID, secret ticket.Secret, change ...func(*websocket.DialOptions)) *page {
	t.Helper()
	conn, _, err := d.open(t, secret, change...)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{conn: conn, texts: make(chan map[string]any, 100), end: make(chan websocket.StatusCode, 1)}
	frames := websocket.NetConn(context.Background(), conn, websocket.MessageBinary)
	if _, _, err := rfb.Join(frames, rfb.MaxSize); err != nil {
		t.Fatal(err)
	}
	go p.read()
	d.attached(v)
	return p
}

func (p *page) read() {
	for {
		kind, b, err := p.conn.Read(context.Background())
		if err != nil {
			p.end <- websocket.CloseStatus(err)
			return
		}
		if kind == websocket.MessageText {
			var m map[string]any
			json.Unmarshal(b, &m)
			p.texts <- m
			continue
		}
		p.mu.Lock()
		p.seen.Write(b)
		p.mu.Unlock()
	}
}

func (p *page) send(t testing.TB, b []byte) {
	t.Helper()
	if err := p.conn.Write(t.Context(), websocket.MessageBinary, b); err != nil {
		t.Fatal(err)
	}
}

func (p *page) say(t testing.TB, text string) {
	t.Helper()
	if err := p.conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// told waits for a text of a kind.
func (p *page) told(kind string) map[string]any {
	for {
		if m := <-p.texts; m["type"] == kind {
			return m
		}
	}
}

func ended(t *testing.T, p *page, want Code) {
	t.Helper()
	if code := <-p.end; code != websocket.StatusCode(want) {
		t.Errorf("closed with %d, want %d", code, want)
	}
}

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }
