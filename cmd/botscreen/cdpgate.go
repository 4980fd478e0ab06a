// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/botscreen/botscreen/shared/cdp"
	"github.com/botscreen/botscreen/shared/control"
)

// cdpGate is a loopback port for programs that drive a browser. All of it lies under a path
// that only whoever started it knows: other users of the machine can connect too, and
// Playwright, Puppeteer and chromedp have no other place for a secret than the address
// (threats.md X27).
type cdpGate struct {
	host   string // IP:PORT
	prefix string // begins with a slash
	proxy  *httputil.ReverseProxy
}

func newCDPGate(host string, dial control.Dialer, report func(error)) *cdpGate {
	g := &cdpGate{host: host, prefix: "/" + secret()}
	g.proxy = proxyTo(dial, func(r *httputil.ProxyRequest) {
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, g.prefix)
		r.Out.URL.RawPath = ""
		// The browser's addresses are made of how its client reached us.
		r.Out.Header.Set(cdp.PrefixHeader, g.prefix)
	}, report, refuseCDP)
	return g
}

func refuseCDP(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusBadGateway
	var refusal *control.Error
	if errors.As(err, &refusal) {
		status = refusal.HTTPStatus()
	}
	http.Error(w, clean(err.Error()), status)
}

// address is where Playwright finds the browser, and socket its WebSocket for programs that
// ask for nothing else.
func (g *cdpGate) address() string { return "http://" + g.host + g.prefix }
func (g *cdpGate) socket() string {
	return "ws://" + g.host + g.prefix + "/devtools/browser/" + cdp.CurrentBrowser
}

func (g *cdpGate) port() string {
	_, port, _ := net.SplitHostPort(g.host) // it is of that form
	return port
}

// serve answers until ctx ends or the listener fails.
func (g *cdpGate) serve(ctx context.Context, listener net.Listener) error {
	server := newLoopback(ctx, g)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.Serve(listener)
}

func (g *cdpGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case !g.ours(r.Host) || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		// Another name is how DNS rebinding looks, and an Origin is a web page.
		http.Error(w, "This address is for programs on this machine.", http.StatusForbidden)
	case !g.knows(r.URL.Path):
		http.Error(w, "This port serves the addresses that `botscreen cdp` printed, whole, and nothing else.\n"+
			"Puppeteer drops the path of a browserURL: give it the WebSocket's address as browserWSEndpoint.", http.StatusForbidden)
	default:
		g.proxy.ServeHTTP(w, r)
	}
}

// ours accepts the names of this machine that no foreign name can be turned into.
func (g *cdpGate) ours(host string) bool {
	return host == g.host || host == "localhost:"+g.port()
}

// knows reports whether a path begins with the secret.
func (g *cdpGate) knows(path string) bool {
	return len(path) > len(g.prefix) && path[len(g.prefix)] == '/' && same(path[:len(g.prefix)], g.prefix)
}
