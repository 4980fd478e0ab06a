// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// webDoor gives each request a stream of its own that a door vouched for.
func webDoor(t *testing.T, grant ticket.Grant, change ...func(*Options)) (d *door, served chan struct{}) {
	d = &door{world: newWorld(t, change...), url: "http://127.0.0.1" + PathView}
	served = make(chan struct{}, 16)
	d.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { d.ServeWeb(context.Background(), far, grant); served <- struct{}{} }()
		return near, nil
	}}}
	return d, served
}

// L9: over a stream that a door vouched for the page's own close hands back and a broken
// one does not; no ticket is asked for, and no renewal given.
func TestL9WebOverAStream(t *testing.T) {
	d, served := webDoor(t, ticket.Grant{Viewer: "ann", Mode: ticket.Control}, func(o *Options) {
		o.Layout = "de"
		o.Paste = func(context.Context, string) error { return nil }
	})
	p := d.enter(t, "ann", "", leaseProtocol)
	if m := p.told("hello"); m["viewer"] != string(lease.ViewerID("ann").Handle()) || m["mode"] != "control" || m["layout"] != "de" ||
		m["paste"] != true || m["renewal"] != nil {
		t.Errorf("greeted with %v", m)
	}
	p.say(t, `{"op":"take","reason":"a code"}`)
	for m := p.told("lease"); m["holding"] != true; m = p.told("lease") {
	}
	p.conn.CloseNow()
	<-served
	if !d.keeper.Holds("ann") {
		t.Error("a connection that broke handed back")
	}
	p = d.enter(t, "ann", "", leaseProtocol)
	if m := p.told("lease"); m["holding"] != true {
		t.Errorf("after the way back: %v", m)
	}
	p.conn.Close(websocket.StatusNormalClosure, "")
	<-served
	if d.keeper.Holds("ann") {
		t.Error("who left on purpose still holds")
	}
}

// R2, X43: also there a foreign page is refused, and there is nothing but the WebSocket.
func TestR2WebOverAStream(t *testing.T) {
	d, served := webDoor(t, ticket.Grant{Viewer: "ann", Mode: ticket.Watch})
	for name, tc := range map[string]struct {
		path, origin, host string
		status             int
	}{
		"other page": {PathView, "https://evil.example", "", 403},
		"rebound":    {PathView, "", "evil.example", 403},
		"no page":    {"/", "", "", 404},
		"no upgrade": {PathView, "", "", 426},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+tc.path, nil)
		req.Host = tc.host
		if tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		resp, err := d.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.status {
			t.Errorf("%s: %s, want %d", name, resp.Status, tc.status)
		}
		<-served
	}
}

// A stream ends with its door, also one whose viewer says nothing.
func TestWebEndsWithItsDoor(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() { w.ServeWeb(ctx, far, ticket.Grant{Viewer: "ann", Mode: ticket.Watch}); close(done) }()
	cancel()
	<-done
	near.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("the stream goes on")
	}
}
