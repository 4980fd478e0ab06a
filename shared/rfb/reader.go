// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"errors"
	"io"
)

// Buffer of a MessageReader: small for the many viewers that only watch, grown
// to the largest message a header may announce when one comes.
const readerBuf = 4 << 10

// MessageReader reads a client's messages one at a time. However the bytes
// arrive, the messages are the same (rule R9).
type MessageReader struct {
	Framing Framing

	r      io.Reader
	buf    []byte
	start  int   // of the first message not yet returned
	end    int   // of what has been read
	offset int64 // of buf[start] in the stream
	err    error // of r, kept until the whole messages before it are returned
}

// NewMessageReader reads from r, which must stand behind the handshake.
func NewMessageReader(r io.Reader) *MessageReader { return &MessageReader{r: r} }

// Next returns the next message. It is good until the next call. The error is
// io.EOF between two messages, io.ErrUnexpectedEOF within one, a *ProtocolError,
// or the reader's; the stream is then over.
func (m *MessageReader) Next() (Message, error) {
	for {
		msg, _, err := m.Framing.Cut(m.buf[m.start:m.end])
		if err != nil {
			return nil, m.locate(err)
		}
		if msg != nil {
			m.start += len(msg)
			m.offset += int64(len(msg))
			return msg, nil
		}
		if err := m.fill(); err != nil {
			return nil, err
		}
	}
}

// Pending reports whether Next has a whole message, or a refusal, without reading:
// a relay flushes what it gathered when there is none.
func (m *MessageReader) Pending() bool {
	msg, _, err := m.Framing.Cut(m.buf[m.start:m.end])
	return msg != nil || err != nil
}

func (m *MessageReader) locate(err error) error {
	var p *ProtocolError
	if errors.As(err, &p) {
		p.Offset = m.offset
	}
	return err
}

// fill reads more bytes, making room for the whole message that has begun.
func (m *MessageReader) fill() error {
	if m.err == nil {
		m.makeRoom()
		var n int
		n, m.err = m.r.Read(m.buf[m.end:])
		m.end += n
		if n > 0 || m.err == nil {
			return nil // what came before the error may be a whole message
		}
	}
	if m.err == io.EOF && m.end > m.start {
		return io.ErrUnexpectedEOF
	}
	return m.err
}

func (m *MessageReader) makeRoom() {
	if m.start > 0 {
		copy(m.buf, m.buf[m.start:m.end])
		m.start, m.end = 0, m.end-m.start
	}
	// The length is bounded: Cut has refused what is not.
	need, _ := m.Framing.Len(m.buf[:m.end])
	if size := max(need, readerBuf); size > len(m.buf) {
		m.buf = append(make([]byte, 0, size), m.buf[:m.end]...)[:size]
	}
}
