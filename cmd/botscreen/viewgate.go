// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/webviewer"
)

// Names within the page's path.
const (
	pathOpen  = "open"
	queryOnce = "once"
	cookieOf  = "botscreen"
)

// errUsedTwice ends a page whose link was opened a second time: one of the two was not
// its user.
var errUsedTwice = errors.New("the link was used twice")

// gate lets one browser in: the first that shows the secret of the link gets a cookie,
// and only with that is anything served (threats.md X27). The cookie's path is random
// too, because browsers send cookies to every port of a host.
type gate struct {
	host   string // HOST:PORT, as a browser names it
	base   string
	once   string // the secret of the link
	cookie string
	page   http.Handler
	socket http.Handler
	opened func() // called when the link was used

	mu   sync.Mutex // guards used
	used bool

	end chan error // has room for one
}

func newGate(host, base string, dial control.Dialer, report func(error)) *gate {
	return &gate{
		host: host, base: base, once: secret(), cookie: secret(), opened: func() {},
		page: http.StripPrefix(strings.TrimSuffix(base, "/"), webviewer.Handler()), socket: socketTo(dial, report),
		end: make(chan error, 1),
	}
}

// serve answers until ctx ends, the listener fails, or the link is used again.
func (p *page) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := newLoopback(ctx, p.gate)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(p.listener) }()
	defer server.Close()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-failed:
		return err
	case err := <-p.end:
		// The one who came second shall read why.
		bounded, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		cancel()
		_ = server.Shutdown(bounded)
		return err
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webviewer.Protect(w.Header())
	rest, ours := strings.CutPrefix(r.URL.Path, g.base)
	switch {
	case g.foreign(r):
		http.Error(w, "This address is for the browser that `botscreen view` opened.", http.StatusForbidden)
	case r.Method != http.MethodGet:
		http.Error(w, "Only GET.", http.StatusMethodNotAllowed)
	case ours && rest == pathOpen:
		g.open(w, r)
	case !g.knows(r):
		http.Error(w, "This address is for the browser that `botscreen view` opened.", http.StatusForbidden)
	case ours && rest == "":
		g.page.ServeHTTP(w, r)
	case ours && "/"+rest == relay.PathView:
		g.socket.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

// foreign reports a request under another name, which is how DNS rebinding looks, or of
// another page.
func (g *gate) foreign(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return r.Host != g.host || len(origins) > 1 || len(origins) == 1 && origins[0] != "http://"+g.host
}

func (g *gate) knows(r *http.Request) bool {
	for _, c := range r.CookiesNamed(cookieOf) {
		if same(c.Value, g.cookie) {
			return true
		}
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// open gives the cookie to the first who comes. What follows is a page that goes on by
// itself: the browser would not send a strict cookie along a redirect from the file.
func (g *gate) open(w http.ResponseWriter, r *http.Request) {
	if !same(r.URL.Query().Get(queryOnce), g.once) {
		http.Error(w, "This link opens nothing.", http.StatusForbidden)
		return
	}
	g.mu.Lock()
	again := g.used
	g.used = true
	g.mu.Unlock()
	if again {
		select {
		case g.end <- errUsedTwice:
		default:
		}
		http.Error(w, "This link was opened before, so the view is closed now. Start `botscreen view` again.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieOf, Value: g.cookie, Path: g.base, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprint(w, `<!doctype html><title>botscreen</title><meta http-equiv="refresh" content="0; url=./">`)
	g.opened()
}

// socketTo carries a browser's WebSocket to the screen's relay, over a stream of its own.
// Nothing of it is read on the way: its frames, and how it ends, are between those two.
func socketTo(dial control.Dialer, report func(error)) http.Handler {
	return proxyTo(dial, func(r *httputil.ProxyRequest) {
		r.Out.URL.Path = relay.PathView
		r.Out.Header.Del("Cookie")
	}, report, refuseSocket)
}

// refuseSocket tells a page why there is no screen: it can read that only from a
// WebSocket that was opened.
func refuseSocket(w http.ResponseWriter, r *http.Request, err error) {
	conn, failure := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{relay.ProtocolLease}})
	if failure != nil {
		return // Accept has answered
	}
	_ = conn.Close(websocket.StatusCode(relay.Gone), shorten(clean(err.Error()), 120))
}

// shorten cuts text to at most n bytes, at the end of a character: a WebSocket's reason
// has room for 123 (RFC 6455 section 5.5.1).
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const more = "…"
	cut := text[:n-len(more)]
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return cut + more
}
