// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

// Watch policies: at a takeover the others' streams end with 4003 before it is seen,
// a new one is refused with it and keeps its ticket, and after the hand-back all come
// in again.
func TestWatchPolicies(t *testing.T) {
	for _, policy := range []screen.Watch{screen.WatchHolder, screen.WatchBlank} {
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
