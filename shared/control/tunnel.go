// SPDX-License-Identifier: MPL-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/botscreen/botscreen/shared/lease"
)

// Reserved commands of Nomad's alloc exec, which the driver answers itself.
const (
	CommandControl = "botscreen:control" // this API as operator
	CommandAgent   = "botscreen:agent"   // this API as agent
	CommandRFB     = "botscreen:rfb"     // one viewer's RFB stream
	CommandCDP     = "botscreen:cdp"     // the browser's DevTools protocol as agent
)

// Hello is the first line of a tunnel. A command is part of a URL and ends in
// logs, so what must not be there travels here (wire.md section 2).
type Hello struct {
	V      int            `json:"v"`
	Viewer lease.ViewerID `json:"viewer,omitempty"`
	Mode   ViewMode       `json:"mode,omitempty"`
	// Web asks for HTTP in place of RFB: the viewer's WebSocket, for a browser.
	Web bool `json:"web,omitempty"`
}

// Answer is the supervisor's line; without an error raw bytes follow it.
type Answer struct {
	V     int    `json:"v"`
	Error *Error `json:"error,omitempty"`
}

// maxTunnelLine bounds both lines in bytes.
const maxTunnelLine = 4 << 10

// Check reports what is wrong with a hello, nil when nothing is.
func (h Hello) Check() *Error {
	switch {
	case h.V != Version:
		return &Error{Kind: BadRequest,
			Message: fmt.Sprintf("The first line asks for version %d; this supervisor speaks version %d.", h.V, Version),
			Next:    "Use the botscreen command of the same release as the driver."}
	case h.Mode != "" && h.Mode != Watch && h.Mode != Control:
		return &Error{Kind: BadRequest, Message: fmt.Sprintf("Unknown mode %q: it must be watch or control.", string(h.Mode))}
	}
	return nil
}

// OpenTunnel plays the caller's part on conn, for example an exec stream: it
// sends the hello and reads the answer. After it conn carries raw bytes. A
// refusal is an *Error. When ctx ends first, conn is unusable.
func OpenTunnel(ctx context.Context, conn net.Conn, hello Hello) error {
	stop := interruptible(ctx, conn)
	defer stop()
	hello.V = Version
	if err := writeLine(conn, hello); err != nil {
		return fmt.Errorf("open tunnel: %w", causeOf(ctx, err))
	}
	var answer Answer
	if err := readLine(conn, &answer); err != nil {
		return fmt.Errorf("open tunnel: %w", causeOf(ctx, err))
	}
	if answer.Error != nil {
		return answer.Error
	}
	if answer.V != Version {
		return fmt.Errorf("open tunnel: supervisor speaks version %d, want %d", answer.V, Version)
	}
	return nil
}

// AcceptTunnel plays the supervisor's part up to the hello. A hello that is not
// well formed has been answered when the error returns.
func AcceptTunnel(conn io.ReadWriter) (Hello, error) {
	var hello Hello
	if err := readLine(conn, &hello); err != nil {
		refusal := &Error{Kind: BadRequest, Message: `The first line must be JSON such as {"v":1,"viewer":"…","mode":"watch"}.`}
		return Hello{}, errors.Join(fmt.Errorf("read tunnel hello: %w", err), AnswerTunnel(conn, refusal))
	}
	if refusal := hello.Check(); refusal != nil {
		return Hello{}, errors.Join(refusal, AnswerTunnel(conn, refusal))
	}
	return hello, nil
}

// AnswerTunnel writes the supervisor's line: raw bytes follow when refusal is nil.
func AnswerTunnel(w io.Writer, refusal *Error) error {
	return writeLine(w, Answer{V: Version, Error: refusal})
}

func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readLine reads one JSON line and not a byte more: what follows belongs to
// whoever takes the stream over.
func readLine(r io.Reader, v any) error {
	var line []byte
	var one [1]byte
	for {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return err
		}
		if one[0] == '\n' {
			return json.Unmarshal(line, v)
		}
		if len(line) == maxTunnelLine {
			return fmt.Errorf("line longer than %d bytes", maxTunnelLine)
		}
		line = append(line, one[0])
	}
}
