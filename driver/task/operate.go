// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
)

// stopSlack is what the stop may take beyond the job's kill_timeout before everything
// is killed from outside.
const stopSlack = 3 * time.Second

// Stop ends the screen: first signal, timeout, SIGKILL for all, and returns when
// nothing is left. A task that has ended is no error.
func (t *Task) Stop(ctx context.Context, timeout time.Duration, first unix.Signal) error {
	if t.over() {
		return nil
	}
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()
	grace := timeout
	if grace <= 0 {
		grace = -1 // at once
	}
	asked, cancel := context.WithTimeout(ctx, max(timeout, 0)+stopSlack)
	defer cancel()
	err := t.client.Stop(asked, control.StopRequest{Force: true, Signal: int(first), Grace: grace})
	if err == nil {
		select {
		case <-t.done:
			return nil
		case <-asked.Done():
		}
	}
	if t.over() {
		return nil
	}
	t.m.log.Warn("the screen did not stop by itself; killing it", "profile", t.View().Profile, "error", err)
	return t.kill(ctx)
}

// kill ends the screen from outside.
func (t *Task) kill(ctx context.Context) error {
	t.mu.Lock()
	t.forced = true
	t.mu.Unlock()
	limit, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	thaw(limit, t.sandbox)
	if err := t.sandbox.Kill(limit); err != nil {
		return fmt.Errorf("kill screen: %w", err)
	}
	select {
	case <-t.done:
		return nil
	case <-limit.Done():
		return fmt.Errorf("kill screen: %w", limit.Err())
	}
}

// Destroy forgets the task. A running one is ended with force, and ErrRunning without.
func (t *Task) Destroy(ctx context.Context, force bool) error {
	if !t.over() {
		if !force {
			return ErrRunning
		}
		if err := t.kill(ctx); err != nil {
			return err
		}
	}
	t.m.forget(t)
	return nil
}

// ErrRunning says that a task has to be stopped first.
var ErrRunning = errors.New("the task is running")

// Signal reaches the programs on the desktop; SIGKILL ends the screen.
func (t *Task) Signal(ctx context.Context, sig unix.Signal) error {
	if t.over() {
		return errors.New("signal task: it has ended")
	}
	if sig == unix.SIGKILL {
		return t.kill(ctx)
	}
	return t.client.Signal(ctx, control.SignalRequest{Signal: int(sig)})
}

// Usage is what the screen uses now.
func (t *Task) Usage(ctx context.Context) (isolation.Usage, error) {
	if t.over() {
		return isolation.Usage{}, errors.New("measure task: it has ended")
	}
	return t.sandbox.Usage(ctx)
}

// Exec runs a command inside the session; its bytes go between the caller and the
// supervisor, this process only carries them. Closing stdin is end of file for the
// command; the end of ctx kills it.
func (t *Task) Exec(ctx context.Context, request control.ExecRequest, stdin io.Reader, stdout, stderr io.Writer, resize <-chan control.TerminalSize) (control.ExecResult, error) {
	if t.over() {
		return control.ExecResult{}, errors.New("exec: the task has ended")
	}
	stream, err := t.client.Exec(ctx, request)
	if err != nil {
		return control.ExecResult{}, t.halted(ctx, err)
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	go func() {
		in := stream.Stdin()
		_, _ = io.Copy(in, stdin)
		_ = in.Close()
	}()
	go func() {
		for size := range resize {
			_ = stream.Resize(size)
		}
	}()
	result, err := stream.Copy(stdout, stderr)
	if ctx.Err() != nil {
		return control.ExecResult{}, ctx.Err()
	}
	return result, t.halted(ctx, err)
}

// halted gives a failure its reason where the sandbox has been halted from outside (P11):
// the session itself cannot say so.
func (t *Task) halted(ctx context.Context, err error) error {
	halter, ok := t.sandbox.(isolation.Halter)
	if err == nil || !ok {
		return err
	}
	if reason := halter.Halted(ctx); reason != "" {
		return &control.Error{Kind: control.Internal, Message: reason}
	}
	return err
}

// Tunnel opens the stream of a reserved command; its caller speaks with the supervisor.
func (t *Task) Tunnel(ctx context.Context, command string) (net.Conn, error) {
	if t.over() {
		return nil, errors.New("open tunnel: the task has ended")
	}
	return t.client.Stream(ctx, control.CallTunnel, url.Values{"command": {command}}, nil)
}
