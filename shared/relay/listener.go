// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/crowd"
)

// Limits of the viewer listener (threats.md X43).
const (
	headerTimeout  = 5 * time.Second
	maxHeaderBytes = 16 << 10
	pageTimeout    = 30 * time.Second
	maxVisitors    = 64 // connections that are no WebSocket yet (X34)
)

// ListenError refuses a listener that would carry a screen in the clear.
type ListenError struct{ Addr net.Addr }

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen on %s: an address that others can reach needs TLS", e.Addr)
}

// Listener is the optional door for viewers with a ticket: the page and the
// WebSocket, nothing else.
type Listener struct {
	Relay *Relay
	Page  http.Handler // GET /; nil: there is none
	TLS   *tls.Config  // nil: only a loopback address may be served
	Log   *slog.Logger
}

// PathView is where the WebSocket is.
const PathView = "/view"

// Serve answers on ln until ctx ends (nil) or ln fails. It closes ln. An address that
// is not loopback is refused with a *ListenError unless TLS is on.
func (l Listener) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if l.TLS == nil && !loopback(ln.Addr()) {
		return &ListenError{ln.Addr()}
	}
	if l.TLS != nil {
		config := l.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		config.NextProtos = []string{"http/1.1"} // what a WebSocket needs
		ln = tls.NewListener(ln, config)
	}
	server := serverFor(ctx, l.routes(), l.Log)
	crowd.Bound(server, maxVisitors)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(ln)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// serverFor has the limits of whoever may connect.
func serverFor(ctx context.Context, handler http.Handler, log *slog.Logger) *http.Server {
	errs := slog.DiscardHandler
	if log != nil {
		errs = log.Handler()
	}
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: pageTimeout,
		IdleTimeout: pageTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(errs, slog.LevelInfo),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

func (l Listener) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+PathView, l.Relay)
	if l.Page != nil {
		mux.Handle("GET /", l.Page)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "Only GET.", http.StatusMethodNotAllowed)
			return
		}
		if err := l.Relay.options.foreign(r); err != nil {
			http.Error(w, "This listener is not known under that name.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// loopback is also a Unix socket, whose mode says who may connect.
func loopback(addr net.Addr) bool {
	switch addr := addr.(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
