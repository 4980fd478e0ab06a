// SPDX-License-Identifier: MPL-2.0

// Package logmon collects what a task writes: one small process per task reads the
// task's two FIFOs and writes rotated files beside them. It is a process of its own,
// so that a task keeps running and its output keeps being read while the agent is
// restarted.
package logmon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec says what one collector does. Nothing in it is secret: it is the argument list
// of the process.
type Spec struct {
	// Dir is the log directory of the allocation.
	Dir  string
	Task string
	// MaxFiles and MaxFileMB bound what is kept of each stream.
	MaxFiles  int
	MaxFileMB int
}

// Streams of a task.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// FIFO is the name, within the log directory, of the FIFO of a stream.
func FIFO(task, stream string) string { return "." + task + "." + stream + ".fifo" }

func (s Spec) args() []string {
	return []string{
		"-dir", s.Dir, "-task", s.Task,
		"-max-files", fmt.Sprint(s.MaxFiles), "-max-file-mb", fmt.Sprint(s.MaxFileMB),
	}
}

func parseArgs(args []string) (Spec, error) {
	var s Spec
	set := flag.NewFlagSet("logmon", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&s.Dir, "dir", "", "")
	set.StringVar(&s.Task, "task", "", "")
	set.IntVar(&s.MaxFiles, "max-files", 0, "")
	set.IntVar(&s.MaxFileMB, "max-file-mb", 0, "")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if s.Dir == "" || s.Task == "" || s.MaxFiles < 1 || s.MaxFileMB < 1 || set.NArg() > 0 {
		return s, errors.New("want -dir, -task, -max-files and -max-file-mb")
	}
	return s, nil
}

// The collector's descriptors: where it says that it reads, and where it is told by letGo that
// it has been kept. The end of the latter without a word is its starter's.
const (
	readyFD = 3
	leashFD = 4
	letGo   = 'k'
)

// Main is the collector process. args follow the name of the sub-command. It ends at
// SIGTERM, after what is still in the FIFOs, when its directory is gone, and when its
// starter dies before it has kept it.
func Main(args []string) int {
	spec, err := parseArgs(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "logmon:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	kept, end := context.WithCancel(ctx)
	defer end()
	go hold(os.NewFile(leashFD, "leash"), end)
	if err := spec.run(kept, os.NewFile(readyFD, "ready")); err != nil {
		fmt.Fprintln(os.Stderr, "logmon:", err)
		return 1
	}
	return 0
}

// hold ends the collector when the leash breaks before it is let go of.
func hold(leash *os.File, end context.CancelFunc) {
	var word [1]byte
	if _, err := leash.Read(word[:]); err != nil || word[0] != letGo {
		end()
	}
	_ = leash.Close()
}

// run collects until ctx is done or the directory is gone. It writes "ready" and
// closes ready once both FIFOs are open; an error before that is written instead.
func (s Spec) run(ctx context.Context, ready io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := openDir(s.Dir)
	if err != nil {
		_, _ = io.WriteString(ready, err.Error())
		return errors.Join(err, ready.Close())
	}
	defer func() { _ = dir.Close() }()
	var wg sync.WaitGroup
	for _, stream := range []string{Stdout, Stderr} {
		fifo, err := openFIFO(dir, FIFO(s.Task, stream))
		if err != nil {
			_, _ = io.WriteString(ready, err.Error())
			return errors.Join(err, ready.Close())
		}
		out := newRotator(dir, s.Task+"."+stream, s.MaxFiles, int64(s.MaxFileMB)<<20)
		// There is a log from the start, if an empty one.
		out.open()
		wg.Go(func() { collect(ctx, fifo, out) })
	}
	_, _ = io.WriteString(ready, "ready")
	_ = ready.Close()
	go watch(ctx, cancel, dir)
	wg.Wait()
	return nil
}

// goneInterval is how often the collector looks whether its directory still exists.
const goneInterval = 30 * time.Second

// watch ends a collector whose allocation was removed while no agent was there.
func watch(ctx context.Context, cancel context.CancelFunc, dir *os.File) {
	tick := time.NewTicker(goneInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			var stat unix.Stat_t
			if unix.Fstat(int(dir.Fd()), &stat) != nil || stat.Nlink == 0 {
				cancel()
				return
			}
		}
	}
}

// chunk is how much is read at once: what a pipe holds.
const chunk = 64 << 10

// collect copies until ctx is done and then what the FIFO still holds. A file that
// cannot be written never stops the reading: an unread pipe freezes the task.
func collect(ctx context.Context, fifo *os.File, out *rotator) {
	defer func() { _ = fifo.Close() }()
	defer out.close()
	stop := context.AfterFunc(ctx, func() { _ = fifo.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, chunk)
	for {
		n, err := fifo.Read(buf)
		out.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			drain(fifo, buf, out)
			return
		}
		if err != nil {
			return
		}
	}
}

func drain(fifo *os.File, buf []byte, out *rotator) {
	raw, err := fifo.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			out.write(buf[:n])
		}
	})
}
