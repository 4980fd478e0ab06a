// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// drainGrace is how long output may still come after the program has ended: what
// it left in the background can hold the pipe open for ever.
const drainGrace = 2 * time.Second

// errCallerGone says that the caller dropped the stream.
var errCallerGone = errors.New("caller is gone")

// pump carries a program's input and output over conn until it has ended. A
// caller that leaves, or sends what is no frame, has its program killed. All
// goroutines have ended when pump returns.
func pump(conn net.Conn, process Process) error {
	out := &frameWriter{conn: conn}
	inputEnded := make(chan error, 1)
	go func() { inputEnded <- feed(conn, process) }()
	outputEnded := make(chan struct{})
	go func() { copyOutputs(out, process); close(outputEnded) }()
	exited := make(chan control.ExecResult, 1)
	go func() { exited <- process.Wait() }()

	var callerErr error
	var result control.ExecResult
	select {
	case result = <-exited:
	case callerErr = <-inputEnded:
		inputEnded <- callerErr // read again below
		process.Kill()
		result = <-exited
	}
	out.drain(process, outputEnded)
	if callerErr == nil {
		callerErr = out.exit(result)
	}
	conn.Close() // ends feed, as does the next line where it is writing
	process.Stdin().Close()
	<-inputEnded
	return callerErr
}

// drain waits for the outputs to end after the program has. While a slow caller
// is what holds them up it has patience, drainGrace at a time.
func (w *frameWriter) drain(process Process, ended <-chan struct{}) {
	grace := time.NewTicker(drainGrace)
	defer grace.Stop()
	for patience := writeTimeout; ; patience -= drainGrace {
		select {
		case <-ended:
			return
		case <-grace.C:
		}
		if patience <= 0 {
			w.conn.Close()
		} else if w.blocked() {
			continue
		}
		process.Stdout().Close()
		if stderr := process.Stderr(); stderr != nil {
			stderr.Close()
		}
		<-ended
		return
	}
}

// feed carries the caller's frames to the program until the stream ends.
func feed(conn net.Conn, process Process) error {
	stdin := process.Stdin()
	defer stdin.Close()
	buf := make([]byte, control.MaxFramePayload)
	for {
		kind, payload, err := control.ReadFrame(conn, buf)
		if err != nil {
			var malformed *control.FrameError
			if errors.As(err, &malformed) {
				return fmt.Errorf("read exec stream: %w", err)
			}
			return errCallerGone
		}
		switch kind {
		case control.FrameStdin:
			// A program that closed its input still has output to deliver.
			stdin.Write(payload)
		case control.FrameStdinClose:
			stdin.Close()
		case control.FrameResize:
			process.Resize(control.ParseSize(payload)) // a terminal that is gone needs no size
		default:
			return fmt.Errorf("read exec stream: %w", &control.FrameError{Type: kind, Length: len(payload), Reason: "is not for the program"})
		}
	}
}

func copyOutputs(out *frameWriter, process Process) {
	var both sync.WaitGroup
	carry := func(kind control.FrameType, from io.ReadCloser) {
		defer both.Done()
		defer from.Close() // a caller that is gone: the program gets SIGPIPE
		buf := make([]byte, control.MaxFramePayload)
		for {
			n, err := from.Read(buf)
			if n > 0 && out.write(kind, buf[:n]) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	}
	both.Add(1)
	go carry(control.FrameStdout, process.Stdout())
	if stderr := process.Stderr(); stderr != nil {
		both.Add(1)
		go carry(control.FrameStderr, stderr)
	}
	both.Wait()
}

// frameWriter keeps frames of two outputs apart.
type frameWriter struct {
	mu   sync.Mutex // guards conn
	conn net.Conn
}

func (w *frameWriter) write(kind control.FrameType, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return control.WriteFrame(w.conn, kind, payload)
}

// blocked reports whether a write is under way.
func (w *frameWriter) blocked() bool {
	if !w.mu.TryLock() {
		return true
	}
	w.mu.Unlock()
	return false
}

func (w *frameWriter) exit(result control.ExecResult) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write exec result: %w", err)
	}
	w.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if w.write(control.FrameExit, text) != nil {
		return errCallerGone
	}
	return nil
}
