// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"errors"
	"io"
	"net"
	"net/http"
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
)

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

// R1: revoking all ends tickets that are open, tickets that were used, and nobody who came
// without one.
func TestR1RevokeAll(t *testing.T) {
	d := newDoor(t)
	var ids []ticket.ID
	mint := func() ticket.Minted {
		m, err := d.tickets.Mint("x", ticket.Grant{Viewer: "e", Mode: ticket.Watch})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
		return m
	}
	used, open := mint(), mint()
	stream := d.enter(t, "e", used.Secret)
	slices.Sort(ids)
	if ended := d.RevokeAll(); !slices.Equal(ended, ids) {
		t.Errorf("ended %v, want %v", ended, ids)
	}
	ended(t, stream, BadTicket)
	if _, _, err := d.tickets.Redeem(open.Secret, func(ticket.Grant) error { return nil }); !errors.Is(err, ticket.ErrRefused) {
		t.Errorf("a revoked ticket: %v", err)
	}
	if again := d.RevokeAll(); len(again) != 0 {
		t.Errorf("ended again: %v", again)
	}
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

// L9: the older stream of a viewer is out of the lease before the newer one can end.
func TestL9OlderStreamLeavesFirst(t *testing.T) {
	w := newWorld(t)
	older := w.newViewer(&streamLink{pipeEnd()}, Admission{Grant: ticket.Grant{Viewer: "a", Mode: ticket.Control}})
	newer := w.newViewer(&streamLink{pipeEnd()}, Admission{Grant: older.grant})
	for _, v := range []*viewer{older, newer} {
		if err := w.attach(v); err != nil {
			t.Fatal(err)
		}
		w.take(t, "a")
	}
	w.detach(newer, true)
	w.detach(older, false) // late
	if l, _ := w.keeper.Lease(); l.Held() {
		t.Errorf("%+v", l)
	}
}

// leaving is a link that takes no more, whose viewer says a moment later that it left.
type leaving struct {
	streamLink
	said chan struct{}
}

func (l *leaving) Read([]byte) (int, error) { <-l.said; return 0, io.EOF }
func (l *leaving) Write([]byte) (int, error) {
	return 0, net.ErrClosed
}
func (l *leaving) tell(any) error  { return net.ErrClosed }
func (l *leaving) endOf(error) End { return End{Code: Normal} }

// L9: a write that fails because the viewer is leaving does not make its leaving an
// accident.
func TestL9ReaderKnowsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, late := range []time.Duration{farewell / 2, 2 * farewell} {
			link := &leaving{streamLink{pipeEnd()}, make(chan struct{})}
			v := w.newViewer(link, Admission{Grant: ticket.Grant{Viewer: "a", Mode: ticket.Control}})
			upstream, server := net.Pipe()
			v.upstream = upstream
			go server.Write([]byte{rfb.TypeBell})
			time.AfterFunc(late, func() { close(link.said) })
			v.run()
			if v.end.Deliberate() != (late < farewell) {
				t.Errorf("said after %v: %v", late, v.end)
			}
			server.Close()
		}
		w.Close()
	})
}
