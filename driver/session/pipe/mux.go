// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxStreams bounds the streams there are at once, both halves' together.
const maxStreams = 512

var errTooMany = errors.New("too many descriptors are in use at once")

// mux is one half's end of the pipe.
type mux struct {
	// handle is called for each frame that is no stream's, in their order.
	handle func(frame) error

	writing sync.Mutex // one frame at a time
	w       io.Writer
	scratch []byte

	mu        sync.Mutex // guards all below
	streams   map[uint32]*stream
	terminals map[uint32]*end // for their size
	last      uint32          // the number given last; the halves' numbers differ in their lowest bit
	over      bool
}

// newMux makes an end; the halves give it another first number.
func newMux(w io.Writer, first uint32) *mux {
	return &mux{w: w, streams: map[uint32]*stream{}, terminals: map[uint32]*end{}, last: first}
}

// send writes one frame, whole.
func (m *mux) send(f frame) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.scratch = f.append(m.scratch[:0])
	if _, err := m.w.Write(m.scratch); err != nil {
		return fmt.Errorf("write to the pipe: %w", err)
	}
	return nil
}

// read serves the pipe until it ends, and ends all streams with it.
func (m *mux) read(r io.Reader) error {
	defer m.abortAll()
	buffer := make([]byte, maxPayload)
	for {
		f, err := readFrame(r, buffer)
		if err != nil {
			return err
		}
		if err := m.dispatch(f); err != nil {
			return err
		}
	}
}

func (m *mux) dispatch(f frame) error {
	if f.kind < kindData {
		return m.handle(f)
	}
	m.mu.Lock()
	s, terminal := m.streams[f.number], m.terminals[f.number]
	m.mu.Unlock()
	if s == nil {
		return nil // it was on its way when its stream ended
	}
	switch f.kind {
	case kindData:
		if !s.put(f.payload) {
			return &brokenError{"more data than there is credit for"}
		}
	case kindEnd:
		s.end()
	case kindCredit:
		if !s.grant(binary.BigEndian.Uint32(f.payload)) {
			return &brokenError{"more credit than the window"}
		}
	case kindReset:
		m.drop(s)
		s.abort()
	case kindResize:
		terminal.setSize(binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:]))
	}
	return nil
}

// refuse ends what rides in a packet of a connection that has ended.
func (m *mux) refuse(f frame) error {
	if f.kind != kindPacket {
		return nil
	}
	rides, _, err := parsePacket(f.payload)
	for _, r := range rides {
		if err := m.send(frame{kindReset, r.stream, nil}); err != nil {
			return err
		}
	}
	return err
}

// open makes a stream of this half.
func (m *mux) open() (*stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last += 2
	return m.enter(m.last)
}

// accept makes the stream that the other half has named.
func (m *mux) accept(id uint32) (*stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id&1 == m.last&1 || m.streams[id] != nil {
		return nil, &brokenError{"a stream with a number that is taken"}
	}
	return m.enter(id)
}

// enter needs m.mu.
func (m *mux) enter(id uint32) (*stream, error) {
	if m.over {
		return nil, io.ErrClosedPipe
	}
	if len(m.streams) >= maxStreams {
		return nil, errTooMany
	}
	s := newStream(id)
	m.streams[id] = s
	return s, nil
}

// addTerminal lets the size of a stream's terminal be set.
func (m *mux) addTerminal(s *stream, e *end) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[s.id] == s {
		m.terminals[s.id] = e
	}
}

// drop forgets a stream: what still comes for it counts for nothing.
func (m *mux) drop(s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, s.id)
	delete(m.terminals, s.id)
}

// abort ends a stream here and at the other half.
func (m *mux) abort(s *stream) {
	m.drop(s)
	if s.abort() {
		_ = m.send(frame{kindReset, s.id, nil}) // a pipe that is over has ended it there too
	}
}

func (m *mux) abortAll() {
	m.mu.Lock()
	m.over = true
	all := m.streams
	m.streams = map[uint32]*stream{}
	m.mu.Unlock()
	for _, s := range all {
		s.abort()
	}
}
