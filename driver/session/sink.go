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
	fd      int
	mu      sync.Mutex // guards dropped and the order of lines
	dropped int
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

// put writes text whole, or reports that it did not fit.
func (s *sink) put(text []byte) bool {
	for len(text) > 0 {
		n, err := unix.Write(s.fd, text)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false // EAGAIN: full; EPIPE: no reader until the next logmon opens it
		}
		text = text[n:]
	}
	return true
}
