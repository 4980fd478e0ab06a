// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// browse is the agent's way to the browser: after the answer its bytes are HTTP, as the
// browser's debugging port would serve it.
func (s *Server) browse(b Browsable) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		leave, err := s.limits.streams.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		browser, err := b.Browse(r.Context(), caller)
		if err != nil {
			return nil, err
		}
		conn, err := s.upgrade(w)
		if err != nil {
			browser.Drop()
			return nil, err
		}
		defer s.track(conn)()
		browser.Carry(conn)
		return written{}, nil
	}
}

// serveBrowser is the same for a reserved command, which acts as the agent.
func (s *Server) serveBrowser(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(tunnelTimeout))
	if _, err := control.AcceptTunnel(conn); err != nil {
		s.log.Info("tunnel refused", "err", err)
		return
	}
	conn.SetDeadline(time.Time{}) // a desktop that sleeps wakes first
	// Whoever this is comes through Nomad: the kernel knows only the plugin.
	browser, err := s.backend.(Browsable).Browse(ctx, Caller{Role: screen.RoleAgent, UID: -1, PID: -1})
	conn.SetWriteDeadline(time.Now().Add(tunnelTimeout))
	if failure := control.AnswerTunnel(conn, s.refusalOf(err)); failure != nil || err != nil {
		if err == nil {
			browser.Drop()
		}
		return
	}
	conn.SetDeadline(time.Time{})
	browser.Carry(conn)
}
