// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"net"
)

// streamLink is a viewer on a connection that carries RFB alone.
type streamLink struct{ conn net.Conn }

func (s *streamLink) Read(b []byte) (int, error)  { return s.conn.Read(b) }
func (s *streamLink) Write(b []byte) (int, error) { return s.conn.Write(b) }

// alive cannot ask: whoever vanished is found when the picture changes.
func (s *streamLink) alive(context.Context) error { return nil }

func (s *streamLink) tell(any) error { return nil }

// endOf never calls an end deliberate: a process that was killed ends its
// connections in the same way as one that was left (rule L9).
func (s *streamLink) endOf(err error) End {
	return End{Code: Abnormal, Reason: "the connection ended", Cause: err}
}

func (s *streamLink) close(End) { s.conn.Close() }
func (s *streamLink) abort()    { s.conn.Close() }
