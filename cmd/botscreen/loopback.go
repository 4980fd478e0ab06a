// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// newLoopback is a server for a port of this machine, which its other users can connect to,
// and web pages in browsers on it.
func newLoopback(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    log.New(io.Discard, "", 0), // what strangers do wrong is theirs
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// proxyTo carries requests to a screen, each over a stream of its own: one that waited for
// its next request would have been cut by a takeover. The screen hears how its client
// reached us, and what else rewrite changes. What cannot be carried is reported, and refuse
// answers it.
func proxyTo(dial control.Dialer, rewrite func(*httputil.ProxyRequest), report func(error), refuse func(http.ResponseWriter, *http.Request, error)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "screen"
			r.Out.Host = r.In.Host
			rewrite(r)
		},
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			DisableKeepAlives: true,
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has left
			}
			report(err)
			refuse(w, r, err)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}
