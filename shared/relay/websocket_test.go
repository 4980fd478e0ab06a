// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
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

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
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

// R2: a foreign Host or Origin is refused before the upgrade, and burns no ticket
// (SEC-06).
func TestR2ForeignPages(t *testing.T) {
	d := newDoor(t, func(o *Options) { o.Hosts = []string{"screens.example"} })
	secret := d.mint(t, "v", ticket.Watch)
	host := strings.TrimPrefix(d.url, "http://")
	refused := func(change func(*websocket.DialOptions)) bool {
		_, resp, err := d.open(t, secret, func(o *websocket.DialOptions) { o.HTTPHeader = http.Header{}; change(o) })
		return err != nil && resp != nil && resp.StatusCode == http.StatusForbidden
	}
	for _, origin := range []string{"https://evil.example", "null", "http://" + host + ".evil.example", "file://", "http://127.0.0.1:1"} {
		if !refused(func(o *websocket.DialOptions) { o.HTTPHeader.Set("Origin", origin) }) {
			t.Errorf("origin %q is let in", origin)
		}
	}
	for _, name := range []string{"evil.example", "evil.example:80", "localhost.evil.example", ""} {
		if name != "" && !refused(func(o *websocket.DialOptions) { o.Host = name }) {
			t.Errorf("host %q is let in", name)
		}
	}
	for name, origin := range map[string]string{host: "http://" + host, "localhost:5": "http://localhost:5", "screens.example": "https://Screens.example", "[::1]:9": "http://[::1]:9"} {
		change := func(o *websocket.DialOptions) {
			o.Host = name
			o.HTTPHeader = http.Header{"Origin": {origin}}
		}
		conn, _, err := d.open(t, secret, change)
		if err != nil {
			t.Errorf("%q is refused: %v", name, err)
			continue
		}
		conn.CloseNow()
		secret = d.mint(t, lease.ViewerID(name), ticket.Watch)
	}
}

// R2, SEC-06: a bad ticket is refused after the upgrade with 4401, always in the same
// words: none, unknown, used, expired, of another screen.
func TestR2BadTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		used, expired := d.mint(t, "v", ticket.Watch), d.mint(t, "w", ticket.Watch)
		other, err := ticket.NewStore().Mint("x", ticket.Grant{Mode: ticket.Watch})
		if err != nil {
			t.Fatal(err)
		}
		d.enter(t, "v", used).conn.CloseNow()
		time.Sleep(ticket.Lifetime)
		for _, secret := range []ticket.Secret{"", "x", used, expired, other.Secret} {
			conn, _, err := d.open(t, secret)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = conn.Read(t.Context())
			var closed websocket.CloseError
			if !errors.As(err, &closed) || closed.Code != websocket.StatusCode(BadTicket) || closed.Reason != "the ticket opens nothing" {
				t.Errorf("%v", err)
			}
		}
		end()
	})
}

// X34: from the sixth bad ticket of a minute on the answer takes a second, and good
// ones do not wait for it.
func TestX34BadTicketsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		try := func() {
			if conn, _, err := d.open(t, "x"); err == nil {
				conn.Read(t.Context())
			}
		}
		begin := time.Now()
		for range 5 {
			try()
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("five took %v", took)
		}
		var group sync.WaitGroup
		for range 40 { // more than wait at once, and than there are places
			group.Go(try)
		}
		synctest.Wait()
		d.visit(t, "v", ticket.Watch)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a good ticket waited %v", took)
		}
		group.Wait()
		if took := time.Since(begin); took < time.Second || took > 3*time.Second {
			t.Errorf("all took %v", took)
		}
		end()
	})
}

// R2: every end has its code.
func TestR2Codes(t *testing.T) {
	d := newDoor(t)
	a, b := d.visit(t, "a", ticket.Control), d.visit(t, "b", ticket.Control)
	d.take(t, "a")
	d.take(t, "b")
	ended(t, a, Taken) // 4000
	newer := d.visit(t, "b", ticket.Control)
	ended(t, b, Replaced) // 4002
	if !d.keeper.Holds("b") {
		t.Error("the newer stream lost the lease")
	}
	bad := d.visit(t, "c", ticket.Watch)
	bad.send(t, []byte{253, 0, 0, 0})
	ended(t, bad, NotFrameable) // 1003
	texter := d.visit(t, "d", ticket.Watch)
	texter.say(t, `{"op":"take"}`) // not agreed on
	ended(t, texter, NotFrameable)
	m, err := d.tickets.Mint("x", ticket.Grant{Viewer: "e", Mode: ticket.Watch})
	if err != nil {
		t.Fatal(err)
	}
	revoked := d.enter(t, "e", m.Secret)
	if !d.Revoke(m.ID) || d.Revoke("nothing") || d.Revoke("") {
		t.Error("revoke does not say what it did")
	}
	ended(t, revoked, BadTicket) // 4401
	d.Close()
	ended(t, newer, Gone) // 4001
}

// L9, LSE-02: 1000 and 1001 hand back; a broken connection, any other code and none
// do not.
func TestL9OnlyADeliberateClose(t *testing.T) {
	d := newDoor(t)
	for _, test := range []struct {
		leave func(*page)
		back  bool
	}{
		{func(p *page) { p.conn.Close(websocket.StatusNormalClosure, "") }, true},
		{func(p *page) { p.conn.Close(websocket.StatusGoingAway, "") }, true},
		{func(p *page) { p.conn.Close(websocket.StatusNoStatusRcvd, "") }, false},
		{func(p *page) { p.conn.Close(4999, "") }, false},
		{func(p *page) { p.conn.CloseNow() }, false},
	} {
		p := d.visit(t, "a", ticket.Control)
		l := d.take(t, "a")
		_, changed := d.keeper.Lease()
		test.leave(p)
		<-changed // handed back, or away
		now, _ := d.keeper.Lease()
		if test.back != !now.Held() || !test.back && (now.Epoch != l.Epoch || now.Away.IsZero()) {
			t.Errorf("back %v: %+v", test.back, now)
		}
		if test.back {
			continue
		}
		// The same viewer has control again when it is back; another does not.
		other := d.visit(t, "b", ticket.Control)
		if d.keeper.Holds("b") || !d.keeper.Holds("a") {
			t.Error("another viewer got the lease")
		}
		again := d.visit(t, "a", ticket.Control)
		if now, _ := d.keeper.Lease(); !now.HeldBy("a") || !now.Away.IsZero() {
			t.Errorf("%+v", now)
		}
		d.keeper.Free()
		for _, p := range []*page{other, again} {
			p.conn.CloseNow()
			<-p.end
		}
	}
}

// Watch policies: at a takeover the others' streams end with 4003 before it is seen,
// a new one is refused with it and keeps its ticket, and after the hand-back all come
// in again.
func TestWatchPolicies(t *testing.T) {
	for _, policy := range []Watch{WatchHolder, WatchBlank} {
		d := newDoor(t, func(o *Options) { o.Watch = policy })
		holder, other := d.visit(t, "a", ticket.Control), d.visit(t, "b", ticket.Watch, leaseProtocol)
		renewal := ticket.Secret(other.told("hello")["renewal"].(string))
		d.take(t, "a")
		// Painted after the takeover: nobody else sees it.
		painted := []byte("\x02a password\x02")
		go d.x.output(1).Write(painted)
		ended(t, other, NotWatchable)
		if bytes.Contains(other.seen.Bytes(), painted) {
			t.Error("a watcher saw what was painted after the takeover")
		}
		fresh := d.mint(t, "c", ticket.Watch)
		for _, secret := range []ticket.Secret{renewal, fresh} {
			conn, _, err := d.open(t, secret)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusCode(NotWatchable) {
				t.Errorf("%v", err)
			}
		}
		if d.ServeStream(t.Context(), pipeEnd(), Admission{Grant: ticket.Grant{Viewer: "d", Mode: ticket.Watch}}).Code != NotWatchable {
			t.Error("a stream came in")
		}
		d.visit(t, "a", ticket.Watch) // the holder's own second screen
		d.keeper.Release("a")
		d.enter(t, "b", renewal)
		d.enter(t, "c", fresh)
		if list := d.Viewers(); len(list) != 4 {
			t.Errorf("%+v", list)
		}
		_ = holder
	}
	// All: nobody is sent away.
	d := newDoor(t)
	d.visit(t, "b", ticket.Watch)
	d.take(t, "a")
	d.visit(t, "c", ticket.Watch)
	if len(d.Viewers()) != 2 {
		t.Errorf("%+v", d.Viewers())
	}
}

func pipeEnd() net.Conn {
	ours, _ := net.Pipe()
	return ours
}

// What a page is told and may say: take, release, deny, paste; SEC-03: a ticket that
// watches may say nothing of it.
func TestLeaseMessages(t *testing.T) {
	pasted := make(chan string, 1)
	d := newDoor(t, func(o *Options) {
		o.Paste = func(_ context.Context, text string) error { pasted <- text; return nil }
	})
	p, w := d.visit(t, "a", ticket.Control, leaseProtocol), d.visit(t, "w", ticket.Watch, leaseProtocol)
	hello := p.told("hello")
	if hello["viewer"] != string(lease.ViewerID("a").Handle()) || hello["mode"] != "control" || len(hello["renewal"].(string)) != 43 {
		t.Errorf("%v", hello)
	}
	if m := p.told("lease"); m["holding"] != false || m["lease"].(map[string]any)["holder"] != "agent" {
		t.Errorf("%v", m)
	}
	p.say(t, `{"op":"paste","text":"not mine"}`)
	p.say(t, `{"op":"take","reason":"log\u001b in"}`)
	if m := p.told("lease"); m["holding"] != true || m["lease"].(map[string]any)["reason"] != "log· in" {
		t.Errorf("%v", m)
	}
	w.told("lease")
	if m := w.told("lease"); m["holding"] != false || m["lease"].(map[string]any)["holder"] != "human" {
		t.Errorf("%v", m)
	}
	p.say(t, `{"op":"paste","text":"ä€漢"}`)
	if text := <-pasted; text != "ä€漢" {
		t.Errorf("%q", text)
	}
	for _, op := range []string{"take", "release", "deny", "paste"} {
		w.say(t, `{"op":"`+op+`","text":"x"}`)
		if m := w.told("error"); m["op"] != op || m["message"] != "this ticket only watches" {
			t.Errorf("%v", m)
		}
	}
	if !d.keeper.Holds("a") || len(pasted) > 0 {
		t.Error("a watcher had its way")
	}
	p.say(t, `{"op":"release"}`)
	if m := p.told("lease"); m["holding"] != false {
		t.Errorf("%v", m)
	}
	p.say(t, `{"op":"fly"}`)
	p.told("error")
	p.say(t, `nonsense`)
	p.told("error")
	p.say(t, `{"op":"`+strings.Repeat("x", maxText)+`"}`)
	ended(t, p, NotFrameable)
}

// L5: with consent the holder is asked on its page, and the asker hears the answer.
func TestL5ConsentOnThePages(t *testing.T) {
	d := newDoor(t)
	policy := lease.DefaultPolicy()
	policy.Consent = true
	var relay *Relay
	d.world.keeper = newKeeper(t, policy, &relay)
	relay = New(Options{Dial: d.x.dial, Tickets: d.tickets, Lease: d.world.keeper, Activity: func() { d.x.tell(func() {}) }})
	t.Cleanup(relay.Close)
	d.world.Relay = relay
	server := httptest.NewServer(relay)
	t.Cleanup(server.Close)
	d.url = server.URL
	a, b := d.visit(t, "a", ticket.Control, leaseProtocol), d.visit(t, "b", ticket.Control, leaseProtocol)
	a.say(t, `{"op":"take"}`)
	a.told("lease")
	a.told("lease")
	b.say(t, `{"op":"take","reason":"my turn"}`)
	if m := a.told("asked"); m["reason"] != "my turn" {
		t.Errorf("%v", m)
	}
	b.told("asking")
	a.say(t, `{"op":"deny"}`)
	b.told("denied")
	if !d.keeper.Holds("a") {
		t.Error("denied and taken")
	}
}

// RFB-21: a viewer that is half gone is found within a minute; the lease stays with
// the person, who counts as away.
func TestRFB21HalfOpenViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		conn, _, err := d.open(t, d.mint(t, "a", ticket.Control))
		if err != nil {
			t.Fatal(err)
		}
		frames := websocket.NetConn(context.Background(), conn, websocket.MessageBinary)
		if _, _, err := rfb.Join(frames, rfb.MaxSize); err != nil {
			t.Fatal(err)
		}
		d.attached("a")
		d.take(t, "a")
		begin := time.Now()
		for l, changed := d.keeper.Lease(); l.Away.IsZero(); l, changed = d.keeper.Lease() {
			<-changed
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("found after %v", took)
		}
		if l, _ := d.keeper.Lease(); !l.HeldBy("a") {
			t.Errorf("%+v", l)
		}
		conn.CloseNow()
		end()
	})
}

// RFB-21: one that answers stays, however quiet it is.
func TestQuietViewerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		p := d.visit(t, "a", ticket.Watch)
		time.Sleep(time.Hour)
		if len(d.Viewers()) != 1 {
			t.Error("gone")
		}
		p.conn.CloseNow()
		end()
	})
}

// RFB-23: messages larger than the library's default pass, up to the stated limit;
// above it this viewer alone is closed.
func TestRFB23LargePaste(t *testing.T) {
	texts := make(chan int, 1)
	d := newDoor(t, func(o *Options) {
		o.Paste = func(_ context.Context, text string) error { texts <- len(text); return nil }
	})
	p, other := d.visit(t, "a", ticket.Control), d.visit(t, "b", ticket.Watch)
	d.take(t, "a")
	for _, n := range []int{32 << 10, 32<<10 + 1, 100_000, rfb.MaxCutText} {
		p.send(t, rfb.CutText{Data: bytes.Repeat([]byte{'x'}, n)}.Append(nil))
		if got := <-texts; got != n {
			t.Errorf("%d of %d", got, n)
		}
	}
	p.send(t, rfb.CutText{Data: make([]byte, rfb.MaxCutText+1)}.Append(nil))
	ended(t, p, NotFrameable)
	other.send(t, rfb.UpdateRequest{Area: corner}.Append(nil))
	if len(d.Viewers()) != 1 {
		t.Errorf("%+v", d.Viewers())
	}
}

// RFB-24: pictures, pings, notes of the lease and a close share a socket. Run with
// the race detector.
func TestRFB24SharedSocket(t *testing.T) {
	d := newDoor(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		p := d.visit(t, viewerID(i), ticket.Control, leaseProtocol)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		v := d.attachedViewer(viewerID(i))
		output := d.x.output(i)
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := output.Write(make([]byte, 3000)); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			for ctx.Err() == nil && v.link.alive(ctx) == nil {
			}
		})
		for range 10 {
			d.take(t, viewerID(i))
			d.keeper.Free()
		}
		d.take(t, "evictor")
		d.take(t, viewerID(i))
		go d.keeper.Take("evictor", screen.Untrusted{}, true)
		ended(t, p, Taken)
		stop()
		group.Wait()
		for len(p.texts) > 0 {
			<-p.texts
		}
	}
}

func (w *world) attachedViewer(id lease.ViewerID) *viewer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.viewers[slices.IndexFunc(w.viewers, func(v *viewer) bool { return v.grant.Viewer == id })]
}

// A renewal lets a viewer back in after a break, keeps its lease, and is worth
// nothing after it left on purpose.
func TestRenewalKeepsTheLease(t *testing.T) {
	d := newDoor(t)
	p := d.visit(t, "a", ticket.Control, leaseProtocol)
	renewal := ticket.Secret(p.told("hello")["renewal"].(string))
	l := d.take(t, "a")
	p.conn.CloseNow()
	again := d.enter(t, "a", renewal, leaseProtocol)
	if now, _ := d.keeper.Lease(); now.Epoch != l.Epoch || !d.keeper.Holds("a") {
		t.Errorf("%+v", now)
	}
	next := ticket.Secret(again.told("hello")["renewal"].(string))
	again.conn.Close(websocket.StatusNormalClosure, "")
	for l, changed := d.keeper.Lease(); l.Held(); l, changed = d.keeper.Lease() {
		<-changed
	}
	d.Relay.Close() // waits for the stream's end
	if _, _, err := d.tickets.Redeem(next, func(ticket.Grant) error { return nil }); !errors.Is(err, ticket.ErrRefused) {
		t.Errorf("%v", err)
	}
}

// SEC-07: no ticket in any log line, refused or not.
func TestSEC07NoTicketInLogs(t *testing.T) {
	var log syncBuffer
	d := newDoor(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	secrets := []ticket.Secret{d.mint(t, "viewer-with-a-secret-name", ticket.Control), "a-bad-ticket"}
	p := d.enter(t, "viewer-with-a-secret-name", secrets[0], leaseProtocol)
	secrets = append(secrets, ticket.Secret(p.told("hello")["renewal"].(string)), "viewer-with-a-secret-name")
	if conn, _, err := d.open(t, secrets[1]); err == nil {
		conn.Read(t.Context())
	}
	d.open(t, secrets[0], func(o *websocket.DialOptions) { o.Host = "evil.example" })
	p.send(t, []byte{99})
	ended(t, p, NotFrameable)
	d.Close()
	text := log.String()
	if !strings.Contains(text, "viewer left") || !strings.Contains(text, "evil.example") {
		t.Errorf("nothing to look at: %s", text)
	}
	for _, secret := range secrets {
		if strings.Contains(text, string(secret)) {
			t.Errorf("a secret in the log: %s", text)
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Nothing is left of those who were here: goroutines and descriptors are back to
// where they were.
func TestNothingLeaks(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	w := newWorld(t)
	server := httptest.NewServer(w.Relay)
	d := &door{w, server.URL, server.Client()}
	for i := range 10 {
		v := viewerID(i)
		p := d.visit(t, v, ticket.Control, leaseProtocol)
		d.take(t, v)
		p.send(t, keyMessage(true, 'x'))
		switch i % 4 {
		case 0:
			p.conn.Close(websocket.StatusNormalClosure, "")
		case 1:
			p.conn.CloseNow()
		case 2:
			p.send(t, []byte{99})
		case 3:
			d.take(t, "other")
		}
		<-p.end
		if conn, _, err := d.open(t, "bad"); err == nil && i < 4 {
			conn.Read(t.Context())
		} else if err == nil {
			conn.CloseNow()
		}
		q := w.knock("half", ticket.Watch)
		q.conn.Close()
		<-q.end
	}
	d.Close()
	server.CloseClientConnections()
	server.Close()
	d.client.CloseIdleConnections()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > goroutines || openFiles(t) > descriptors+1 { // the lease's directory is open still
		if time.Now().After(deadline) {
			var stacks [1 << 16]byte
			t.Fatalf("%d goroutines were %d, %d descriptors were %d\n%s", runtime.NumGoroutine(), goroutines,
				openFiles(t), descriptors, stacks[:runtime.Stack(stacks[:], true)])
		}
		runtime.Gosched()
	}
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// X43: in the clear only on this machine; only GET, and short headers.
func TestX43Listener(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused *ListenError
	if err := (Listener{Relay: w.Relay}).Serve(t.Context(), elsewhere{ln}); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })
	go func() { done <- Listener{Relay: w.Relay, Page: page}.Serve(ctx, ln) }()
	url := "http://" + ln.Addr().String()
	for _, test := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/", "", 200}, {"POST", "/", "", 405}, {"PUT", PathView, "", 405}, {"GET", "/", "evil.example", 403},
		{"GET", PathView, "", 426}, {"DELETE", "/x", "", 405},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), test.method, url+test.path, nil)
		req.Host = test.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status || resp.Header.Get("Server") != "" {
			t.Errorf("%+v: %s", test, resp.Status)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	req.Header.Set("X-Long", strings.Repeat("x", maxHeaderBytes+8<<10))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("long header: %s", resp.Status)
		}
	}
	d := &door{w, url + PathView, http.DefaultClient}
	d.visit(t, "v", ticket.Watch)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// elsewhere is a listener that others can reach.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// FuzzOperate: no text frame does harm.
func FuzzOperate(f *testing.F) {
	for _, text := range []string{`{"op":"take","reason":"x"}`, `{"op":"release"}`, `{"op":"paste","text":"x"}`, `[]`, `{"op":1}`, ``} {
		f.Add([]byte(text), false)
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, text []byte, control bool) {
		mode := ticket.Watch
		if control {
			mode = ticket.Control
		}
		before, _ := w.keeper.Lease()
		v := w.newViewer(nil, Admission{Grant: ticket.Grant{Viewer: "v", Mode: mode}})
		v.operate(text)
		if after, _ := w.keeper.Lease(); after.Epoch != before.Epoch && !control {
			t.Fatal("the lease moved")
		}
	})
}

// L9: a newer stream's deliberate end hands back, however close behind the older one
// it comes.
func TestL9AfterAReplacement(t *testing.T) {
	d := newDoor(t)
	for i := range 20 {
		v := viewerID(i)
		older := d.visit(t, v, ticket.Control)
		d.take(t, v)
		newer := d.visit(t, v, ticket.Control, leaseProtocol)
		newer.told("hello")
		newer.conn.Close(websocket.StatusNormalClosure, "")
		ended(t, older, Replaced)
		for l, changed := d.keeper.Lease(); l.Held(); l, changed = d.keeper.Lease() {
			if !l.Away.IsZero() {
				t.Fatalf("round %d: the viewer counts as away", i)
			}
			<-changed
		}
	}
}
