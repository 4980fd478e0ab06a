// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// tunnelTimeout bounds the time until a tunnel's first line has come.
const tunnelTimeout = 10 * time.Second

func wantsStream(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), control.UpgradeProtocol) {
		return false
	}
	for option := range strings.SplitSeq(r.Header.Get("Connection"), ",") {
		if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
			return true
		}
	}
	return false
}

// upgrade takes the connection from net/http and tells the caller that its bytes
// are raw from here on.
func (s *Server) upgrade(w http.ResponseWriter) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	conn.SetDeadline(time.Now().Add(writeTimeout))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", control.UpgradeProtocol)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	conn.SetDeadline(time.Time{})
	return control.Prepend(conn, buffered.Reader), nil
}

// tunnelRoles is the role each reserved command gives its caller.
var tunnelRoles = map[string]screen.Role{
	control.CommandControl: screen.RoleOperator,
	control.CommandAgent:   screen.RoleAgent,
	control.CommandRFB:     screen.RoleViewer,
	control.CommandCDP:     screen.RoleAgent,
}

// tunnel turns an operator's connection into the stream of one reserved command:
// its far end speaks first, and has the role of the command, not of this door.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
	command := r.URL.Query().Get("command")
	role, ok := tunnelRoles[command]
	if !ok || !s.serves(command) {
		return nil, &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("This supervisor does not serve the command %q.", command),
			Next:    "Compare the versions of the command and of the driver."}
	}
	leave, err := s.limits.streams.enter(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, err := s.upgrade(w)
	if err != nil {
		return nil, err
	}
	defer s.track(conn)()
	defer conn.Close()
	switch command {
	case control.CommandRFB:
		s.serveViewer(r.Context(), conn)
	case control.CommandCDP:
		s.serveBrowser(r.Context(), conn)
	default:
		s.serveTunnel(conn, role)
	}
	return written{}, nil
}

// serves says whether the backend can do what a reserved command is for.
func (s *Server) serves(command string) (ok bool) {
	switch command {
	case control.CommandRFB:
		_, ok = s.backend.(Viewable)
	case control.CommandCDP:
		_, ok = s.backend.(Browsable)
	default:
		ok = true
	}
	return ok
}

func (s *Server) serveTunnel(conn net.Conn, role screen.Role) {
	conn.SetDeadline(time.Now().Add(tunnelTimeout))
	hello, err := control.AcceptTunnel(conn)
	if err == nil {
		err = control.AnswerTunnel(conn, nil)
	}
	if err != nil {
		s.log.Info("tunnel refused", "err", err)
		return
	}
	conn.SetDeadline(time.Time{})
	// Whoever this is comes through Nomad: the kernel knows only the plugin.
	s.ServeConn(conn, Caller{Role: role, UID: -1, PID: -1, Viewer: hello.Viewer})
}

// serveViewer is the stream of one viewer: after the answer its bytes are RFB.
func (s *Server) serveViewer(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(tunnelTimeout))
	hello, err := control.AcceptTunnel(conn)
	if err != nil {
		s.log.Info("tunnel refused", "err", err)
		return
	}
	// Whoever this is comes through Nomad: the kernel knows only the plugin.
	caller := Caller{Role: screen.RoleViewer, UID: -1, PID: -1, Viewer: hello.Viewer}
	relay, err := s.backend.(Viewable).View(ctx, caller, control.ViewRequest{Mode: hello.Mode, Web: hello.Web})
	if err := control.AnswerTunnel(conn, s.refusalOf(err)); err != nil || relay == nil {
		return
	}
	conn.SetDeadline(time.Time{})
	relay(ctx, conn)
}

// rfb is one viewer's stream for a door that was opened for that viewer.
func (s *Server) rfb(b Viewable) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		req, err := control.ParseViewRequest(r.URL.Query())
		if err != nil {
			return nil, &control.Error{Kind: control.BadRequest, Message: "The screen cannot be viewed: " + err.Error() + "."}
		}
		leave, err := s.limits.streams.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		relay, err := b.View(r.Context(), caller, req)
		if err != nil {
			return nil, err
		}
		conn, err := s.upgrade(w)
		if err != nil {
			return nil, err
		}
		defer s.track(conn)()
		defer conn.Close()
		relay(r.Context(), conn)
		return written{}, nil
	}
}

// refusalOf is how an error stands in a tunnel's answer, nil for none.
func (s *Server) refusalOf(err error) *control.Error {
	var refusal *control.Error
	if err == nil || errors.As(err, &refusal) {
		return refusal
	}
	s.log.Error("tunnel without an answer", "err", err)
	return &control.Error{Kind: control.Internal, Message: "The supervisor could not do this: " + err.Error()}
}
