// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"errors"
	"io"
	"time"
)

// sizeEvery is how often the size of a terminal is looked at while nobody types: it is set
// at the other end of ours, which tells nobody.
const sizeEvery = 300 * time.Millisecond

// run carries a stream between its local end and the pipe, and closes the end when both
// directions are over. tells says that this half is the one that hears of a terminal's size.
func (m *mux) run(s *stream, e *end, tells bool) {
	s.atReset(e.interrupt)
	if e.shape == shapeTerminal {
		m.addTerminal(s, e)
	}
	over := make(chan struct{})
	if e.in {
		e.pipeline.Go(func() {
			if !m.carryIn(s, e) {
				m.abort(s) // the other direction as well
			}
		})
	}
	if e.out {
		e.pipeline.Go(func() {
			if !m.carryOut(s, e, tells) {
				m.abort(s)
			}
		})
	}
	if tells && e.shape == shapeTerminal {
		go m.watchSize(s, e, over)
	}
	go func() {
		e.pipeline.Wait()
		close(over)
		m.drop(s)
		_ = e.file.Close()
	}()
}

// carryIn writes what comes to the local end; false ends the stream in both directions.
func (m *mux) carryIn(s *stream, e *end) bool {
	for {
		data, err := s.take()
		if errors.Is(err, io.EOF) {
			return e.finishWriting() || !e.out
		}
		if err != nil {
			return false
		}
		if _, err := e.file.Write(data); err != nil {
			return false
		}
		s.release(len(data))
		if m.send(frame{kindCredit, s.id, number(uint32(len(data)))}) != nil {
			return false
		}
	}
}

// carryOut sends what the local end gives; false ends the stream in both directions.
func (m *mux) carryOut(s *stream, e *end, tells bool) bool {
	var source io.Reader = e.file
	if e.source != nil {
		source = e.source
	}
	buffer := make([]byte, maxData)
	for {
		n, err := source.Read(buffer)
		if tells {
			m.tellSize(s, e) // before what was typed after it
		}
		if !m.sendAll(s, buffer[:n]) {
			return false
		}
		if err == nil {
			continue
		}
		s.mu.Lock()
		aborted := s.reset
		s.mu.Unlock()
		if aborted || m.send(frame{kindEnd, s.id, nil}) != nil {
			return false
		}
		// The other direction of a socket goes on; a terminal that has hung up takes what
		// is on its way still, and no more comes.
		return true
	}
}

func (m *mux) sendAll(s *stream, data []byte) bool {
	for len(data) > 0 {
		n, err := s.spend(len(data))
		if err != nil || m.send(frame{kindData, s.id, data[:n]}) != nil {
			return false
		}
		data = data[n:]
	}
	return true
}

func (m *mux) watchSize(s *stream, e *end, over <-chan struct{}) {
	tick := time.NewTicker(sizeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.tellSize(s, e)
		case <-over:
			return
		}
	}
}

func (m *mux) tellSize(s *stream, e *end) {
	if rows, columns, changed := e.newSize(); changed {
		payload := []byte{byte(rows >> 8), byte(rows), byte(columns >> 8), byte(columns)}
		_ = m.send(frame{kindResize, s.id, payload}) // a pipe that is over says so elsewhere
	}
}
