// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// ExecStream is the raw stream of a command: what an agent forwards in both directions without a
// change.
type ExecStream = grpc.BidiStreamingClient[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]

// OpenExec opens the raw stream. Its first message must be the setup. The stream ends with ctx, or
// when the host lets the process go; release frees it. Describe turns a failed Send or Recv into an
// error of this package.
func (i *Instance) OpenExec(ctx context.Context) (stream ExecStream, release func(), err error) {
	callCtx, cancel := i.callContext(ctx)
	stream, err = i.proc.driver.ExecTaskStreaming(callCtx)
	if err != nil {
		cancel()
		return nil, nil, i.classify(ctx, "ExecTaskStreaming", err)
	}
	return stream, cancel, nil
}

// Describe says what the failure of a raw stream means.
func (i *Instance) Describe(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return i.classify(ctx, "ExecTaskStreaming", err)
}

// stdinChunkBytes is how much of the input goes into one message.
const stdinChunkBytes = 32 << 10

// ExecTaskStreaming runs a command with live input and output until it ends. Nil streams are empty
// and discarded. The end of Stdin closes the command's input. ExecTaskStreaming does not wait for a
// Read of Stdin that is still pending when the command has ended. Cancelling ctx kills the command.
func (i *Instance) ExecTaskStreaming(ctx context.Context, id nomadplugin.TaskID, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	// Both directions end together: a failed writer must not leave the command running.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, release, err := i.OpenExec(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	setup := &driverpb.ExecTaskStreamingRequest_Setup{TaskId: string(id), Command: req.Command, Tty: req.TTY}
	if err := stream.Send(&driverpb.ExecTaskStreamingRequest{Setup: setup}); err != nil && !errors.Is(err, io.EOF) {
		return nil, i.Describe(ctx, err)
	}
	input := make(chan *driverpb.ExecTaskStreamingRequest)
	go readInput(ctx, req.Stdin, input)
	go sendInput(ctx, stream, input, req.Resize)
	return i.receiveOutput(ctx, stream, req)
}

// readInput ends when the input does; after the end of the command it ends with the next read.
func readInput(ctx context.Context, stdin io.Reader, input chan<- *driverpb.ExecTaskStreamingRequest) {
	defer close(input)
	put := func(op *driverpb.ExecTaskStreamingIOOperation) bool {
		select {
		case input <- &driverpb.ExecTaskStreamingRequest{Stdin: op}:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for stdin != nil {
		buf := make([]byte, stdinChunkBytes)
		n, err := stdin.Read(buf)
		if n > 0 && !put(&driverpb.ExecTaskStreamingIOOperation{Data: buf[:n]}) {
			return
		}
		if err != nil {
			break
		}
	}
	put(&driverpb.ExecTaskStreamingIOOperation{Close: true})
}

// sendInput is the only sender of the stream after the setup. Failures show when receiving.
func sendInput(ctx context.Context, stream ExecStream, input <-chan *driverpb.ExecTaskStreamingRequest, resize <-chan nomadplugin.TerminalSize) {
	for {
		var msg *driverpb.ExecTaskStreamingRequest
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			msg = &driverpb.ExecTaskStreamingRequest{TtySize: &driverpb.ExecTaskStreamingRequest_TerminalSize{
				Height: int32(size.Rows), Width: int32(size.Columns)}}
		case op, ok := <-input:
			if !ok {
				input = nil
				continue
			}
			msg = op
		}
		if stream.Send(msg) != nil {
			return
		}
	}
}

func (i *Instance) receiveOutput(ctx context.Context, stream ExecStream, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	var result *nomadplugin.ExitResult
	for {
		msg, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && result == nil:
			return nil, malformed("ExecTaskStreaming", "the stream ended without a result")
		case errors.Is(err, io.EOF):
			return result, nil
		case err != nil:
			return nil, i.Describe(ctx, err)
		case result != nil:
			return nil, malformed("ExecTaskStreaming", "a message after the result")
		}
		if err := forward(req, msg); err != nil {
			return nil, err
		}
		if msg.GetExited() {
			if result = msg.GetResult(); result == nil {
				return nil, malformed("ExecTaskStreaming", "no exit result")
			}
		}
	}
}

func forward(req nomadplugin.ExecRequest, msg *driverpb.ExecTaskStreamingResponse) error {
	for _, out := range []struct {
		name string
		w    io.Writer
		data []byte
	}{
		{"stdout", req.Stdout, msg.GetStdout().GetData()},
		{"stderr", req.Stderr, msg.GetStderr().GetData()},
	} {
		if out.w == nil || len(out.data) == 0 {
			continue
		}
		if _, err := out.w.Write(out.data); err != nil {
			return fmt.Errorf("write %s of the command: %w", out.name, err)
		}
	}
	return nil
}
