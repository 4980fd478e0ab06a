// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"io"
	"sync"
)

// stream is what stands for one passed descriptor: bytes both ways, each with a window.
type stream struct {
	id uint32

	mu     sync.Mutex // guards all below
	change sync.Cond  // of any of it
	// inbox is what came and is not taken yet; at most window bytes, or the other half has
	// sent more than it may.
	inbox  [][]byte
	held   int
	ended  bool // no more comes
	credit int  // how much may be sent
	reset  bool // nothing is taken or given any more
	// onReset is called once when that happens.
	onReset func()
}

func newStream(id uint32) *stream {
	s := &stream{id: id, credit: window}
	s.change.L = &s.mu
	return s
}

// put keeps data that came; false where the other half sent more than it may.
func (s *stream) put(data []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reset {
		return true // it was on its way
	}
	if s.ended || s.held+len(data) > window {
		return false
	}
	s.inbox = append(s.inbox, append([]byte(nil), data...))
	s.held += len(data)
	s.change.Broadcast()
	return true
}

// take waits for data; io.EOF where no more comes, io.ErrClosedPipe after a reset. What it
// returned counts as held until release.
func (s *stream) take() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.reset:
			return nil, io.ErrClosedPipe
		case len(s.inbox) > 0:
			data := s.inbox[0]
			s.inbox = s.inbox[1:]
			return data, nil
		case s.ended:
			return nil, io.EOF
		}
		s.change.Wait()
	}
}

// all is what has come, and whether that is everything.
func (s *stream) all() (data []byte, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range s.inbox {
		data = append(data, part...)
	}
	return data, s.ended
}

// release says that n bytes that take returned are gone.
func (s *stream) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= n
}

// end says that no more comes.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.change.Broadcast()
}

// grant lets n bytes more be sent; false where that is more than the window.
func (s *stream) grant(n uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > window || s.credit+int(n) > window {
		return s.reset
	}
	s.credit += int(n)
	s.change.Broadcast()
	return true
}

// spend waits until at least one byte may be sent and returns how many of n may be.
func (s *stream) spend(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit == 0 && !s.reset {
		s.change.Wait()
	}
	if s.reset {
		return 0, io.ErrClosedPipe
	}
	n = min(n, s.credit)
	s.credit -= n
	return n, nil
}

// abort ends the stream in both directions and reports whether it was the first to.
func (s *stream) abort() bool {
	s.mu.Lock()
	if s.reset {
		s.mu.Unlock()
		return false
	}
	s.reset, s.inbox = true, nil
	call := s.onReset
	s.change.Broadcast()
	s.mu.Unlock()
	if call != nil {
		call()
	}
	return true
}

// atReset has call called at the stream's reset, at once where that has been.
func (s *stream) atReset(call func()) {
	s.mu.Lock()
	already := s.reset
	s.onReset = call
	s.mu.Unlock()
	if already {
		call()
	}
}
