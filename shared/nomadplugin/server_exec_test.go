// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

func setup(tty bool, command ...string) *driverpb.ExecTaskStreamingRequest {
	return &driverpb.ExecTaskStreamingRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{TaskId: "a/t/1", Command: command, Tty: tty}}
}

// exchange sends messages, half closes, and renders every answer.
func exchange(t *testing.T, client driverpb.DriverClient, messages ...*driverpb.ExecTaskStreamingRequest) ([]string, error) {
	t.Helper()
	stream, err := client.ExecTaskStreaming(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			break
		}
	}
	_ = stream.CloseSend()
	var answers []string
	for {
		answer, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return answers, err
		}
		answers = append(answers, render(answer))
	}
}

func render(m *driverpb.ExecTaskStreamingResponse) string {
	switch {
	case m.GetExited():
		return fmt.Sprintf("exit %d", m.GetResult().GetExitCode())
	case m.GetStdout().GetClose():
		return "out closed"
	case m.GetStderr().GetClose():
		return "err closed"
	case m.GetStdout() != nil:
		return "out " + string(m.GetStdout().GetData())
	default:
		return "err " + string(m.GetStderr().GetData())
	}
}

func streamError(t *testing.T, client driverpb.DriverClient, command ...string) error {
	t.Helper()
	_, err := exchange(t, client, setup(false, command...))
	return err
}

func TestC61_C62_framing_of_the_output(t *testing.T) {
	driver := &badDriver{stream: func(_ context.Context, req ExecRequest) (*ExitResult, error) {
		_, _ = io.WriteString(req.Stdout, "one")
		_, _ = io.WriteString(req.Stderr, "two")
		return &ExitResult{ExitCode: 43}, nil
	}}
	_, client := serve(t, driver)
	for tty, want := range map[bool][]string{
		false: {"out one", "err two", "out closed", "err closed", "exit 43"},
		true:  {"out one", "out two", "out closed", "exit 43"},
	} {
		got, err := exchange(t, client, setup(tty, "x"))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("tty %v: got %q, %v: want %q", tty, got, err, want)
		}
	}
}

func TestC67_framing_of_the_input(t *testing.T) {
	var seen string
	var sizes []TerminalSize
	driver := &badDriver{stream: func(_ context.Context, req ExecRequest) (*ExitResult, error) {
		data, err := io.ReadAll(req.Stdin)
		for size := range req.Resize {
			sizes = append(sizes, size)
		}
		seen = fmt.Sprintf("%q %v %q", data, err, req.Command)
		return &ExitResult{}, nil
	}}
	_, client := serve(t, driver)
	_, err := exchange(t, client, setup(false, "a", "b"),
		&driverpb.ExecTaskStreamingRequest{},
		&driverpb.ExecTaskStreamingRequest{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte("in")}},
		&driverpb.ExecTaskStreamingRequest{TtySize: &driverpb.ExecTaskStreamingRequest_TerminalSize{Height: 24, Width: 80}},
		&driverpb.ExecTaskStreamingRequest{TtySize: &driverpb.ExecTaskStreamingRequest_TerminalSize{Height: -1, Width: 1 << 20}},
		&driverpb.ExecTaskStreamingRequest{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte("put"), Close: true}},
		&driverpb.ExecTaskStreamingRequest{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte("late")}})
	if want := `"input" <nil> ["a" "b"]`; err != nil || seen != want {
		t.Errorf("got %s, %v: want %s", seen, err, want)
	}
	if len(sizes) == 0 || sizes[len(sizes)-1] != (TerminalSize{0, 65535}) {
		t.Errorf("sizes %v: want the newest, within bounds", sizes)
	}
	for name, messages := range map[string][]*driverpb.ExecTaskStreamingRequest{
		"first message should always be setup": {{}},
		"exec: the command is empty":           {setup(false)},
	} {
		if _, err := exchange(t, client, messages...); status.Code(err) != codes.Unknown || status.Convert(err).Message() != name {
			t.Errorf("got %v: want %s", err, name)
		}
	}
}

func TestExecInputNobodyReads(t *testing.T) {
	_, client := serve(t, &badDriver{stream: func(context.Context, ExecRequest) (*ExitResult, error) { return &ExitResult{}, nil }})
	data := []byte(strings.Repeat("x", 64<<10))
	messages := []*driverpb.ExecTaskStreamingRequest{setup(false, "x")}
	for range 100 {
		messages = append(messages, &driverpb.ExecTaskStreamingRequest{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: data}})
	}
	got, err := exchange(t, client, messages...)
	if want := []string{"out closed", "err closed", "exit 0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestExecOutputIsSplitSerialisedAndEndsWithTheCall(t *testing.T) {
	late := make(chan io.Writer, 1)
	driver := &badDriver{stream: func(_ context.Context, req ExecRequest) (*ExitResult, error) {
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() { _, _ = req.Stdout.Write(make([]byte, 3*execChunkBytes+1)) })
			writers.Go(func() { _, _ = req.Stderr.Write(make([]byte, 1000)) })
		}
		writers.Wait()
		late <- req.Stdout
		return &ExitResult{}, nil
	}}
	_, client := serve(t, driver)
	got, err := exchange(t, client, setup(false, "x"))
	if err != nil {
		t.Fatal(err)
	}
	var bytes int
	for n, answer := range got {
		if data, ok := strings.CutPrefix(answer, "out \x00"); ok {
			bytes += len(data) + 1
		}
		if len(answer) > execChunkBytes+4 {
			t.Errorf("message %d has %d bytes", n, len(answer))
		}
	}
	if bytes != 8*(3*execChunkBytes+1) {
		t.Errorf("%d bytes of output", bytes)
	}
	if _, err := (<-late).Write([]byte("late")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("output after the call: %v", err)
	}
}

func TestExecErrors(t *testing.T) {
	driver := &badDriver{}
	_, client := serve(t, driver)
	for text, answer := range map[string]func() (*ExitResult, error){
		"no such program":       func() (*ExitResult, error) { return nil, errors.New("no such program") },
		errNoResult.Error():     func() (*ExitResult, error) { return nil, nil },
		ErrTaskNotFound.Error(): func() (*ExitResult, error) { return nil, ErrTaskNotFound },
		"result and trouble":    func() (*ExitResult, error) { return &ExitResult{}, errors.New("result and trouble") },
	} {
		driver.stream = func(context.Context, ExecRequest) (*ExitResult, error) { return answer() }
		got, err := exchange(t, client, setup(false, "x"))
		if status.Code(err) != codes.Unknown || status.Convert(err).Message() != text || len(got) != 0 {
			t.Errorf("got %q, %v: want %s", got, err, text)
		}
	}
}

func TestC68_a_client_that_leaves(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	_, client := serve(t, &badDriver{stream: func(ctx context.Context, req ExecRequest) (*ExitResult, error) {
		close(started)
		_, err := io.ReadAll(req.Stdin)
		<-ctx.Done()
		ended <- err
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(testContext(t))
	stream, err := client.ExecTaskStreaming(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(setup(false, "x")); err != nil {
		t.Fatal(err)
	}
	<-started
	cancel()
	if err := <-ended; err == nil {
		t.Error("a vanished client looks like the end of its input")
	}
}
