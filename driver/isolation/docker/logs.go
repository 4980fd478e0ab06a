// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"
)

// follower passes a container's output on to the task's logs. The engine keeps it
// meanwhile, so nothing inside ever waits for a reader (S8a), and a follower that lost
// its engine goes on where it was.
type follower struct {
	s              *sandbox
	stdout, stderr *os.File
	since          time.Time // of the last message passed on
	cancel         context.CancelFunc
	done           chan struct{} // closed when nothing more is written
}

// FollowLogs passes on what the session says from since on, until it has ended.
func (s *sandbox) FollowLogs(stdout, stderr *os.File, since time.Time) error {
	out, err := reopen(stdout)
	if err != nil {
		return err
	}
	errs, err := reopen(stderr)
	if err != nil {
		_ = out.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{s: s, stdout: out, stderr: errs, since: since, cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	s.logs = f
	s.mu.Unlock()
	go f.run(ctx)
	return nil
}

// reopen is the same file with a description of its own, which does not block: a FIFO
// that nobody reads holds up its writer only until drain gives it up.
func reopen(f *os.File) (*os.File, error) {
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	return again, nil
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	defer f.stdout.Close()
	defer f.stderr.Close()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		over := f.hasEnded()
		began := f.since
		err := f.copy(ctx)
		// The end of the stream is the session's end only where that was seen before it
		// was asked for; else the engine went away.
		if ctx.Err() != nil || errdefs.IsNotFound(err) || over && err == nil || errors.Is(err, errSink) {
			return
		}
		if f.since != began {
			pause = shortestPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) hasEnded() bool {
	select {
	case <-f.s.done:
		return true
	default:
		return false
	}
}

// copy follows the engine's stream once.
func (f *follower) copy(ctx context.Context) error {
	stream, err := f.s.b.api.ContainerLogs(ctx, f.s.record.Container, container.LogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: true,
		Since: fmt.Sprintf("%d.%09d", f.since.Unix(), f.since.Nanosecond()),
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	return f.demultiplex(stream)
}

// maxMessage bounds one message, in bytes; engines split output at 16 KiB.
const maxMessage = 1 << 20

// errSink says that a log cannot be written any more.
var errSink = errors.New("the log is closed")

// demultiplex reads the engine's frames: one byte for the stream, three of nothing, the
// length in four, big-endian; then one message behind its time (Engine API, "Attach to
// a container", stream format).
func (f *follower) demultiplex(stream io.Reader) error {
	var header [8]byte
	var message bytes.Buffer
	for {
		if _, err := io.ReadFull(stream, header[:]); err != nil {
			return ignoreEnd(err)
		}
		size := binary.BigEndian.Uint32(header[4:])
		if size > maxMessage {
			return fmt.Errorf("follow log: a message of %d bytes, at most %d", size, maxMessage)
		}
		message.Reset()
		if _, err := io.CopyN(&message, stream, int64(size)); err != nil {
			return ignoreEnd(err)
		}
		if err := f.pass(header[0], message.Bytes()); err != nil {
			return err
		}
	}
}

// pass writes one message without its time, unless it was passed on before.
func (f *follower) pass(stream byte, message []byte) error {
	stamp, text, ok := bytes.Cut(message, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(stamp)); ok && err == nil {
		if !at.After(f.since) {
			return nil
		}
		f.since, message = at, text
	}
	to := f.stdout
	if stream == 2 {
		to = f.stderr
	}
	if _, err := to.Write(message); err != nil {
		return errors.Join(errSink, err)
	}
	return nil
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// drainLimit is how long the last words of a session may take to be read.
const drainLimit = 2 * time.Second

// drain waits until all is passed on, or gives up: Nomad may have nobody read any more.
func (f *follower) drain(ctx context.Context) {
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	f.cancel()
	_ = f.stdout.SetWriteDeadline(time.Unix(1, 0)) // wakes a write to a full FIFO
	_ = f.stderr.SetWriteDeadline(time.Unix(1, 0))
	<-f.done
}
