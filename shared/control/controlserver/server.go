// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/botscreen/botscreen/shared/crowd"
	"github.com/botscreen/botscreen/shared/screen"
)

// Limits of one connection (threats.md X34 and X43).
const (
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 1 << 20
	maxCallers     = 128 // connections of one door that are no byte stream
)

// Server serves one backend through any number of doors. New makes it; Shutdown
// ends it.
type Server struct {
	backend Backend
	log     *slog.Logger
	http    *http.Server
	end     context.CancelFunc
	limits  limits
	refused atomic.Uint64 // calls

	mu      sync.Mutex // guards streams
	streams map[io.Closer]struct{}
}

// Refused is how many calls were refused.
func (s *Server) Refused() uint64 { return s.refused.Load() }

// New makes a server. Nothing runs before Serve or ServeConn.
func New(backend Backend, log *slog.Logger) *Server {
	ctx, end := context.WithCancel(context.Background())
	s := &Server{
		backend: backend,
		log:     log,
		end:     end,
		limits:  newLimits(),
		streams: map[io.Closer]struct{}{},
	}
	s.http = &http.Server{
		Handler:           counted(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       connContext,
		ConnState:         connState,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s
}

// Serve answers on every connection of ln in the given role, until Shutdown
// (nil) or an error of ln. It closes ln.
func (s *Server) Serve(ln net.Listener, role screen.Role) error {
	return s.ServeDoor(ln, Door{Role: role})
}

// ServeDoor is Serve for a door that does not let everybody in.
func (s *Server) ServeDoor(ln net.Listener, d Door) error {
	err := s.http.Serve(entrance{ln, d, crowd.New(maxCallers)})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeConn answers on one connection that came some other way, such as an exec
// stream, and returns when it is closed. It owns conn.
func (s *Server) ServeConn(conn net.Conn, caller Caller) {
	defer conn.Close() // where Shutdown came before Serve took it
	ln := newSingle(&doorConn{Conn: conn, caller: caller})
	if err := s.http.Serve(ln); err != io.EOF && !errors.Is(err, http.ErrServerClosed) {
		s.log.Warn("connection ended", "err", err)
	}
}

// Shutdown refuses new calls, ends the ones that wait and all byte streams, and
// returns when no call is running or ctx has ended.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	for stream := range s.streams {
		stream.Close()
	}
	s.mu.Unlock()
	return s.http.Shutdown(ctx)
}

// track remembers a byte stream, which net/http forgets, until it is released.
func (s *Server) track(stream io.Closer) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[stream] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, stream)
	}
}
