// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// ExecResult is how a program started by an exec call ended.
type ExecResult struct {
	ExitCode int    `json:"exit_code"`
	Signal   int    `json:"signal,omitempty"`
	Error    string `json:"error,omitempty"` // why there is no exit code
	// Kind is human_has_control where a takeover ended the program.
	Kind Kind `json:"kind,omitempty"`
}

// ExecStream is the caller's end of a running program. One goroutine may call
// Copy while others use Stdin and Resize.
type ExecStream struct {
	conn net.Conn

	mu sync.Mutex // guards writes to conn, so that frames never mix
}

// NewExecStream speaks exec frames over conn, which is the stream's from now on.
func NewExecStream(conn net.Conn) *ExecStream { return &ExecStream{conn: conn} }

// Close drops the stream; a program that still runs is killed.
func (s *ExecStream) Close() error { return s.conn.Close() }

// Stdin writes to the program; Close gives it end of file.
func (s *ExecStream) Stdin() io.WriteCloser { return execStdin{s} }

// Resize tells a program on a terminal its new size.
func (s *ExecStream) Resize(size TerminalSize) error {
	return s.write(FrameResize, size.AppendSize(nil))
}

func (s *ExecStream) write(kind FrameType, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return WriteFrame(s.conn, kind, payload)
}

// ErrExecCut says that the stream ended before the program's result came.
var ErrExecCut = errors.New("exec stream ended before the program's result")

// Copy hands the program's output to the two writers until it has ended, and
// returns its result. Without it the error wraps ErrExecCut or is the writer's.
func (s *ExecStream) Copy(stdout, stderr io.Writer) (ExecResult, error) {
	r := bufio.NewReader(s.conn)
	buf := make([]byte, MaxFramePayload)
	for {
		kind, payload, err := ReadFrame(r, buf)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = ErrExecCut
			}
			return ExecResult{}, fmt.Errorf("read exec stream: %w", err)
		}
		switch kind {
		case FrameStdout:
			_, err = stdout.Write(payload)
		case FrameStderr:
			_, err = stderr.Write(payload)
		case FrameExit:
			var result ExecResult
			if err := json.Unmarshal(payload, &result); err != nil {
				return ExecResult{}, fmt.Errorf("read exec result: %w", err)
			}
			return result, nil
		default:
			err = &FrameError{kind, len(payload), "is not for the caller"}
		}
		if err != nil {
			return ExecResult{}, fmt.Errorf("copy exec output: %w", err)
		}
	}
}

type execStdin struct{ stream *ExecStream }

func (in execStdin) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		chunk := p[written:min(len(p), written+MaxFramePayload)]
		if err := in.stream.write(FrameStdin, chunk); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}

func (in execStdin) Close() error { return in.stream.write(FrameStdinClose, nil) }
