// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"errors"
	"io"

	"github.com/botscreen/botscreen/shared/rfb"
)

// framing has no extension: none that changes a length is ever agreed on (rule R7).
var framing rfb.Framing

// kinds is what has to be known of most messages, by their type. Package rfb knows it;
// the table saves calls for each message.
var kinds = func() (table [256]struct {
	length        uint8 // 0: it has no one length, or is none
	passes, input bool
}) {
	for i := range table {
		kind := byte(i)
		if n, err := framing.Len([]byte{kind}); err == nil {
			table[i].length = uint8(n)
		}
		table[i].passes, table[i].input = passes(kind), rfb.Message{kind}.Input()
	}
	return table
}()

// lengthOf is the length of the first message in b, 0 while b does not hold all of it.
func lengthOf(b []byte) (int, *rfb.ProtocolError) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := framing.Len(b)
	switch {
	case err != nil:
		return 0, protocolFault(err)
	case n > len(b):
		return 0, nil
	}
	return n, nil
}

func protocolFault(err error) *rfb.ProtocolError {
	var bad *rfb.ProtocolError
	if !errors.As(err, &bad) {
		bad = &rfb.ProtocolError{Reason: err.Error()}
	}
	return bad
}

// frames buffers what a viewer sends. Other than rfb.MessageReader it hands out all
// that has been read at once, so that what passes unchanged is passed together: that
// is several times as fast.
type frames struct {
	r          io.Reader
	buf        []byte
	start, end int   // of what has not been handled
	offset     int64 // of buf[start] in the stream
}

// frameBuf is the buffer of one who sends only short messages.
const frameBuf = 4 << 10

// unread is good until more.
func (f *frames) unread() []byte { return f.buf[f.start:f.end] }

// keep says what of unread has not been handled: its end.
func (f *frames) keep(rest []byte) {
	handled := f.end - f.start - len(rest)
	f.start += handled
	f.offset += int64(handled)
}

// more reads. A stream that ends within a message ends unexpectedly.
func (f *frames) more() error {
	copy(f.buf, f.buf[f.start:f.end])
	f.start, f.end = 0, f.end-f.start
	// The length is bounded: what is not has been refused.
	need, _ := framing.Len(f.buf[:f.end])
	if size := max(need, frameBuf); size > len(f.buf) {
		f.buf = append(make([]byte, 0, size), f.buf[:f.end]...)[:size]
	}
	for {
		n, err := f.r.Read(f.buf[f.end:])
		f.end += n
		switch {
		case n > 0:
			return nil // an error comes again
		case err == io.EOF && f.end > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// locate says where in the stream a bad message is.
func (f *frames) locate(bad *rfb.ProtocolError) *rfb.ProtocolError {
	bad.Offset = f.offset
	return bad
}
