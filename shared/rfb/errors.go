// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"errors"
	"fmt"
)

// ProtocolError says that the other side sent what cannot be part of RFB, or
// more than is accepted. After it the stream is out of step: close it.
type ProtocolError struct {
	Offset int64 // of the message's first byte, counted from the handshake's end
	Type   uint8 // the message's type byte
	Reason string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("message at byte %d: type %d %s", e.Offset, e.Type, e.Reason)
}

// HandshakeError says that no session came about.
type HandshakeError struct {
	Reason string
	// Said is the server's own reason, at most 4 KiB of untrusted text.
	Said string
}

func (e *HandshakeError) Error() string {
	if e.Said == "" {
		return "handshake: " + e.Reason
	}
	return fmt.Sprintf("handshake: %s: %.256q", e.Reason, e.Said)
}

// ErrStale says that a connection still owes an update from an earlier picture,
// so that the next one might be old. Open another connection.
var ErrStale = errors.New("connection still owes an update of an earlier picture")

// ErrIncomplete says that a server ended its updates before the picture was whole.
var ErrIncomplete = errors.New("picture incomplete")
