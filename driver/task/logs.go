// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// logError says that the task's log cannot be opened now; logmon may be late.
type logError struct{ err error }

func (e *logError) Error() string { return "open task log: " + e.err.Error() }
func (e *logError) Unwrap() error { return e.err }

// logWait is how long logmon may take to open its end.
const logWait = 5 * time.Second

// openLog opens the write end of one of the task's log FIFOs. The FIFO lies in a
// directory that a sibling task can write, so it is opened without following links and
// must be what logmon made: a FIFO, ours, 0600, with one name (X38).
func openLog(ctx context.Context, path string) (*os.File, error) {
	if path == "" || path == os.DevNull {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	ctx, cancel := context.WithTimeout(ctx, logWait)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		f, err := openFIFO(path)
		if err == nil || !errors.Is(err, unix.ENXIO) {
			return f, err
		}
		// ENXIO: no reader yet. There is no event for one, see fifo(7).
		select {
		case <-ctx.Done():
			return nil, &logError{fmt.Errorf("nobody reads %s within %s", filepath.Base(path), logWait)}
		case <-time.After(wait):
		}
	}
}

func openFIFO(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &logError{fmt.Errorf("%s: %w", filepath.Base(path), err)}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return nil, &logError{err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFIFO || stat.Uid != uint32(os.Geteuid()) || stat.Mode&0o077 != 0 || stat.Nlink != 1 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open task log %s: not the FIFO that Nomad made", filepath.Base(path))
	}
	return os.NewFile(uintptr(fd), path), nil
}
