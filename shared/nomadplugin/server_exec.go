// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"errors"
	"io"
	"math"
	"sync"

	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// execChunkBytes is the largest piece of output in one message. Agents wrap every message in a JSON
// frame of its own, so larger pieces are cheaper, and this one still fits every known buffer.
const execChunkBytes = 32 << 10

type execStream = grpc.BidiStreamingServer[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]

// ExecTaskStreaming turns the messages of the stream into readers and writers for the driver and
// ends it with the closes of both outputs and exactly one result, after everything else.
func (s *driverServer) ExecTaskStreaming(stream execStream) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return wireError(ctx, err)
	}
	setup := first.GetSetup()
	switch {
	case setup == nil:
		return wireError(ctx, errors.New("first message should always be setup"))
	case len(setup.GetCommand()) == 0:
		return wireError(ctx, errNoCommand)
	}
	in, out := newExecInput(), &execOutput{stream: stream}
	// Recv returns when this method does, so the goroutine ends with the call.
	go in.receive(stream)
	defer in.stop()
	req := ExecRequest{
		Command: setup.GetCommand(), TTY: setup.GetTty(),
		Stdin: in.reader, Stdout: execWriter{out, false}, Stderr: execWriter{out, !setup.GetTty()},
		Resize: in.resize,
	}
	result, err := s.driver.ExecTaskStreaming(ctx, TaskID(setup.GetTaskId()), req)
	if err == nil && result == nil {
		err = errNoResult
	}
	if err != nil {
		out.stop()
		return unsupported(ctx, err, "driver does not support exec")
	}
	return wireError(ctx, out.finish(result, setup.GetTty()))
}

// execInput feeds the driver with what the client sends.
type execInput struct {
	reader *io.PipeReader
	writer *io.PipeWriter
	resize chan TerminalSize
}

func newExecInput() *execInput {
	r, w := io.Pipe()
	return &execInput{reader: r, writer: w, resize: make(chan TerminalSize, 1)}
}

// stop makes a pending hand-over to a driver that no longer reads return.
func (in *execInput) stop() { _ = in.reader.Close() }

// receive runs until the client closes its half, disappears, or the call is over. Input that the
// command does not read holds up what comes behind it, which is the back-pressure the client needs.
func (in *execInput) receive(stream execStream) {
	defer close(in.resize)
	for {
		msg, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			_ = in.writer.CloseWithError(err)
			return
		}
		in.deliver(msg)
	}
}

func (in *execInput) deliver(msg *driverpb.ExecTaskStreamingRequest) {
	if size := msg.GetTtySize(); size != nil {
		in.sendSize(TerminalSize{Rows: cells(size.GetHeight()), Columns: cells(size.GetWidth())})
	}
	stdin := msg.GetStdin()
	if data := stdin.GetData(); len(data) > 0 {
		// A command that ended before its input is no failure.
		_, _ = in.writer.Write(data)
	}
	if stdin.GetClose() {
		_ = in.writer.Close()
	}
}

// sendSize replaces a size that the driver has not looked at: only the newest matters.
func (in *execInput) sendSize(size TerminalSize) {
	select {
	case <-in.resize:
	default:
	}
	in.resize <- size
}

func cells(n int32) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

// execOutput serialises the outputs of one command; gRPC allows one sender at a time.
type execOutput struct {
	stream execStream

	mu   sync.Mutex // guards done and the order of sends
	done bool
}

func (o *execOutput) send(msg *driverpb.ExecTaskStreamingResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return io.ErrClosedPipe
	}
	return o.stream.Send(msg)
}

// stop refuses the output of goroutines that outlive the call.
func (o *execOutput) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
}

func (o *execOutput) finish(result *ExitResult, tty bool) error {
	closed := &driverpb.ExecTaskStreamingIOOperation{Close: true}
	last := []*driverpb.ExecTaskStreamingResponse{{Stdout: closed}, {Stderr: closed}, {Exited: true, Result: result}}
	if tty {
		last = append(last[:1], last[2])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	for _, msg := range last {
		if err := o.stream.Send(msg); err != nil {
			return err
		}
	}
	return nil
}

type execWriter struct {
	out    *execOutput
	stderr bool
}

func (w execWriter) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		chunk := p[written:min(written+execChunkBytes, len(p))]
		op := &driverpb.ExecTaskStreamingIOOperation{Data: chunk}
		msg := &driverpb.ExecTaskStreamingResponse{Stdout: op}
		if w.stderr {
			msg = &driverpb.ExecTaskStreamingResponse{Stderr: op}
		}
		if err := w.out.send(msg); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}
