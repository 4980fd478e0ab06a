// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
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
}

// tunnel turns an operator's connection into the stream of one reserved command:
// its far end speaks first, and has the role of the command, not of this door.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
	command := r.URL.Query().Get("command")
	role, ok := tunnelRoles[command]
	if !ok {
		return nil, &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("This supervisor does not serve the command %q.", command),
			Next:    "Use botscreen:control or botscreen:agent."}
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
	s.serveTunnel(conn, role)
	return written{}, nil
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
