// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"encoding/binary"
	"fmt"
)

// Types of the messages a client sends after the handshake:
//
//	0   SetPixelFormat            20
//	2   SetEncodings              4+4n        n: 16 bits at 2
//	3   FramebufferUpdateRequest  10
//	4   KeyEvent                  8
//	5   PointerEvent              6, or 7     extended buttons and bit 7 at 1
//	6   ClientCutText             8+|n|       n: signed 32 bits at 4
//	150 EnableContinuousUpdates   10
//	248 ClientFence               9+n         n: 8 bits at 8
//	250 xvp                       4
//	251 SetDesktopSize            8+16n       n: 8 bits at 6
//	255 QEMU                      12          sub-type 0 at 1
//
// Nothing else has a length that is known for certain. In particular 253 (gii)
// and other sub-types of 255 are refused, not guessed (rule R3).
const (
	TypeSetPixelFormat           = 0
	TypeSetEncodings             = 2
	TypeFramebufferUpdateRequest = 3
	TypeKeyEvent                 = 4
	TypePointerEvent             = 5
	TypeClientCutText            = 6
	TypeEnableContinuousUpdates  = 150
	TypeFence                    = 248
	TypeXVP                      = 250
	TypeSetDesktopSize           = 251
	TypeQEMU                     = 255
)

// Message is one whole message of a client, type byte first, as it was sent.
type Message []byte

// Type is the message's type byte.
func (m Message) Type() uint8 { return m[0] }

// Input reports whether the message acts on the screen, which is the holder's
// right alone (rule R6): keys, pointer, clipboard and the desktop's size.
func (m Message) Input() bool {
	switch m[0] {
	case TypeKeyEvent, TypePointerEvent, TypeClientCutText, TypeSetDesktopSize, TypeQEMU:
		return true
	}
	return false
}

// Framing cuts a client's bytes into messages. The zero value is a connection
// without extended mouse buttons.
type Framing struct {
	// ExtendedButtons says that both sides agreed on encoding -316.
	ExtendedButtons bool
}

// fixedLen is the length of the messages that have only one; the marks below
// stand for the others.
var fixedLen = func() (table [256]int8) {
	for i := range table {
		table[i] = lenUnknown
	}
	table[TypeSetPixelFormat] = 20
	table[TypeSetEncodings] = lenDeclared
	table[TypeFramebufferUpdateRequest] = 10
	table[TypeKeyEvent] = 8
	table[TypePointerEvent] = lenDeclared
	table[TypeClientCutText] = lenDeclared
	table[TypeEnableContinuousUpdates] = 10
	table[TypeFence] = lenDeclared
	table[TypeXVP] = 4
	table[TypeSetDesktopSize] = lenDeclared
	table[TypeQEMU] = lenDeclared
	return table
}()

const (
	lenUnknown  = -1
	lenDeclared = 0
)

// Len is the length of the first message in b, 0 while b is too short to tell.
// A refusal is a *ProtocolError and comes as soon as the header is there.
func (f Framing) Len(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	switch n := fixedLen[b[0]]; n {
	case lenUnknown:
		return 0, refuse(b[0], "has no known length")
	case lenDeclared:
		return f.declaredLen(b)
	default:
		return int(n), nil
	}
}

func (f Framing) declaredLen(b []byte) (int, error) {
	switch b[0] {
	case TypePointerEvent:
		if !f.ExtendedButtons {
			return 6, nil
		}
		if len(b) < 2 {
			return 0, nil
		}
		return 6 + int(b[1]>>7), nil
	case TypeQEMU:
		if len(b) < 2 {
			return 0, nil
		}
		if b[1] != 0 {
			return 0, refuse(b[0], fmt.Sprintf("with sub-type %d has no known length", b[1]))
		}
		return 12, nil
	case TypeSetEncodings:
		if len(b) < 4 {
			return 0, nil
		}
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n > MaxEncodings {
			return 0, refuse(b[0], fmt.Sprintf("lists %d encodings, at most %d", n, MaxEncodings))
		}
		return 4 + 4*n, nil
	case TypeClientCutText:
		return cutTextLen(b)
	case TypeFence:
		if len(b) < 9 {
			return 0, nil
		}
		if b[8] > MaxFence {
			return 0, refuse(b[0], fmt.Sprintf("carries %d bytes, at most %d", b[8], MaxFence))
		}
		return 9 + int(b[8]), nil
	default: // TypeSetDesktopSize; the count is at 6, 7 is padding
		if len(b) < 7 {
			return 0, nil
		}
		return 8 + 16*int(b[6]), nil
	}
}

// cutTextLen counts in 64 bits: the negative of the least 32-bit number is itself.
func cutTextLen(b []byte) (int, error) {
	if len(b) < 8 {
		return 0, nil
	}
	declared := int64(int32(binary.BigEndian.Uint32(b[4:])))
	if declared < 0 { // extended clipboard: 4 bytes of flags come first
		declared = -declared
		if declared < 4 {
			return 0, refuse(b[0], fmt.Sprintf("extended with %d bytes, at least 4", declared))
		}
	}
	if declared > MaxCutText {
		return 0, refuse(b[0], fmt.Sprintf("carries %d bytes, at most %d", declared, MaxCutText))
	}
	return 8 + int(declared), nil
}

func refuse(kind uint8, reason string) *ProtocolError {
	return &ProtocolError{Type: kind, Reason: reason}
}

// Cut splits the first message off b. It is nil while b does not hold all of it.
// The message is a part of b.
func (f Framing) Cut(b []byte) (m Message, rest []byte, err error) {
	n, err := f.Len(b)
	if err != nil || n == 0 || n > len(b) {
		return nil, b, err
	}
	return b[:n:n], b[n:], nil
}
