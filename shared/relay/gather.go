// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
)

// gatherer makes the WebSocket library send each frame with one system call. The
// library writes a frame's header through a buffer, and with it as much of the payload
// as the buffer takes, before the rest: two calls, and two packets, for each chunk of the
// picture (docs/decisions/031).
type gatherer struct{ http.ResponseWriter }

// maxFrameHeader is the longest header of a frame from a server, RFC 6455 section 5.2.
const maxFrameHeader = 10

// Hijack is the library's way to the connection. A connection that cannot write from
// several buffers at once, such as TLS, is left as it is.
func (g gatherer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		if rw.Writer.Buffered() > 0 { // of the answer to the upgrade
			if err := rw.Writer.Flush(); err != nil {
				return nil, nil, err
			}
		}
		whole := &frameConn{Conn: conn}
		return whole, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(whole, maxFrameHeader)), nil
	}
	return conn, rw, nil
}

// frameConn holds the beginning of a frame back until the rest of it comes. Its writes
// are frames of a server, in pieces of which the first holds the whole header; the
// library lets one in at a time.
type frameConn struct {
	net.Conn
	left   int                  // bytes of the frame that have not come
	begun  [maxFrameHeader]byte // what is held back
	held   int
	pieces [2][]byte
}

func (c *frameConn) Write(b []byte) (int, error) {
	if c.left == 0 {
		c.left = frameLen(b)
	}
	c.left -= len(b)
	if c.left > 0 && c.held == 0 && len(b) <= len(c.begun) {
		c.held = copy(c.begun[:], b)
		return len(b), nil
	}
	if c.held == 0 {
		return c.Conn.Write(b)
	}
	buffers := net.Buffers(append(c.pieces[:0], c.begun[:c.held], b))
	n, err := buffers.WriteTo(c.Conn)
	n, c.held = n-int64(c.held), 0
	return max(0, int(n)), err
}

// frameLen is how long an unmasked frame is, header included.
func frameLen(b []byte) int {
	switch n := int(b[1] & 0x7f); n {
	case 126:
		return 4 + int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		return 10 + int(binary.BigEndian.Uint64(b[2:]))
	default:
		return 2 + n
	}
}
