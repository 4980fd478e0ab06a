// SPDX-License-Identifier: MPL-2.0

package control

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A stream of an exec call is cut into frames, in both directions:
//
//	+------+------------------------+---------+
//	| type | payload length, 24 bit | payload |
//	+------+------------------------+---------+
//
// The stream ends after Exit, or without it when one side is gone.

// FrameType says what a frame's payload is.
type FrameType uint8

// Frames from the caller (below 16) and from the program.
const (
	FrameStdin      FrameType = 0  // bytes for the program
	FrameStdinClose FrameType = 1  // empty: the program reads end of file
	FrameResize     FrameType = 2  // rows and columns, 16 bits each
	FrameStdout     FrameType = 16 // bytes the program wrote
	FrameStderr     FrameType = 17
	FrameExit       FrameType = 18 // an ExecResult as JSON; nothing follows
)

const frameHeader = 4

// MaxFramePayload bounds one frame in bytes: longer data is several frames.
const MaxFramePayload = 32 << 10

// FrameError is a stream that is not made of such frames.
type FrameError struct {
	Type   FrameType
	Length int
	Reason string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("exec frame type %d of %d bytes: %s", e.Type, e.Length, e.Reason)
}

// ReadFrame reads one frame. The payload lies in buf, which must hold
// MaxFramePayload bytes, and is good until buf is used again. At the end of the
// stream between two frames the error is io.EOF.
func ReadFrame(r io.Reader, buf []byte) (FrameType, []byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind := FrameType(header[0])
	length := int(binary.BigEndian.Uint32(header[:]) & 0xffffff)
	if reason := frameFault(kind, length); reason != "" {
		return kind, nil, &FrameError{kind, length, reason}
	}
	payload := buf[:length]
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return kind, nil, err
	}
	return kind, payload, nil
}

func frameFault(kind FrameType, length int) string {
	if length > MaxFramePayload {
		return fmt.Sprintf("more than %d bytes", MaxFramePayload)
	}
	switch kind {
	case FrameStdin, FrameStdout, FrameStderr, FrameExit:
		return ""
	case FrameStdinClose:
		if length != 0 {
			return "must be empty"
		}
	case FrameResize:
		if length != 4 {
			return "must be 4 bytes"
		}
	default:
		return "unknown type"
	}
	return ""
}

// WriteFrame writes one frame with one Write call. It is an error of the caller
// to give more than MaxFramePayload bytes.
func WriteFrame(w io.Writer, kind FrameType, payload []byte) error {
	if reason := frameFault(kind, len(payload)); reason != "" {
		return &FrameError{kind, len(payload), reason}
	}
	frame := make([]byte, frameHeader, frameHeader+len(payload))
	binary.BigEndian.PutUint32(frame, uint32(kind)<<24|uint32(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// AppendSize writes the payload of a resize frame.
func (s TerminalSize) AppendSize(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, s.Rows)
	return binary.BigEndian.AppendUint16(b, s.Cols)
}

// ParseSize reads the payload of a resize frame, which ReadFrame has checked.
func ParseSize(payload []byte) TerminalSize {
	return TerminalSize{
		Rows: binary.BigEndian.Uint16(payload),
		Cols: binary.BigEndian.Uint16(payload[2:]),
	}
}
