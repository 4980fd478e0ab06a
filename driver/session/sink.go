// SPDX-License-Identifier: MPL-2.0

package session

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// sink writes to the task's log without ever waiting for its reader: a reader that
// stopped (a FIFO full after 64 KiB) must not freeze the desktop (DSP-17, S8a). What
// does not fit is dropped and counted, and the count is written when there is room.
type sink struct {
	fd int

	mu      sync.Mutex // guards all below and the order of lines
	dropped int
	torn    bool // the last line was written in part
}

func newSink(f *os.File) *sink {
	fd := int(f.Fd())
	// Fd made the file blocking; the log must be the opposite.
	_ = unix.SetNonblock(fd, true)
	return &sink{fd: fd}
}

// Write never fails: who logs has nothing better to do with an error.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		note := fmt.Appendf(nil, "session: %d writes to the log dropped: nobody read it\n", s.dropped)
		if !s.put(note) {
			s.dropped++
			return len(line), nil
		}
		s.dropped = 0
	}
	if !s.put(line) {
		s.dropped++
	}
	return len(line), nil
}

// put writes text whole, or reports that it did not fit. A line of which a part fitted
// is ended before the next one begins.
func (s *sink) put(text []byte) bool {
	if s.torn {
		if n, _ := s.write([]byte{'\n'}); n == 0 {
			return false
		}
		s.torn = false
	}
	n, err := s.write(text)
	s.torn = err != nil && n > 0
	return err == nil
}

// write stops at EAGAIN, a full pipe, and at EPIPE, no reader until the next one opens
// the FIFO.
func (s *sink) write(text []byte) (written int, err error) {
	for written < len(text) {
		n, err := unix.Write(s.fd, text[written:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}
