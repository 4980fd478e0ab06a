// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// version is the payload of the first frame, which the node's half sends.
const version = 1

// kind says what a frame is.
type kind byte

// The frames. A packet and open and close carry the number of a link, one connection of
// the session; all below the number of a stream.
const (
	kindHello  kind = 1 + iota // the first frame: version
	kindOpen                   // the session has connected
	kindClose                  // the session, or the supervisor, has ended the connection
	kindPacket                 // one packet, behind what rides in it
	kindData                   // at most maxData bytes
	kindEnd                    // there is no more data
	kindCredit                 // as many bytes more may be sent
	kindReset                  // nobody takes or gives anything any more
	kindResize                 // the size of a terminal
)

const (
	// window is how much of a stream may be on its way, in bytes: what its other end has
	// to hold for one that does not read.
	window = 256 << 10
	// maxData bounds the data of one frame, in bytes, so that packets come in between.
	maxData = 32 << 10
	// maxRiding is how many descriptors the kernel passes with one packet (SCM_MAX_FD).
	maxRiding = 253

	headerSize = 9 // kind, number, length
	ridingSize = 5 // kind of the descriptor, number of its stream
	// maxPayload is the longest payload there is: a packet with all that rides in it.
	maxPayload = 1 + maxRiding*ridingSize + dialhome.MaxPacket
)

// frame is one message of the pipe: kind, number and the length of the payload, big-endian,
// and the payload.
type frame struct {
	kind    kind
	number  uint32
	payload []byte
}

// brokenError says that the other half does not keep to the form.
type brokenError struct{ reason string }

func (e *brokenError) Error() string { return "the pipe is broken: " + e.reason }

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, f.number)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(b, f.payload...)
}

// readFrame reads one frame; its payload is in buffer, which has room for maxPayload, until
// the next one. Where the pipe ends between two frames that is io.EOF.
func readFrame(r io.Reader, buffer []byte) (frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: kind(header[0]), number: binary.BigEndian.Uint32(header[1:])}
	size := binary.BigEndian.Uint32(header[5:])
	least, most, ok := f.kind.sizes()
	if !ok || size < least || size > most {
		return frame{}, &brokenError{fmt.Sprintf("a frame of kind %d with %d bytes", f.kind, size)}
	}
	f.payload = buffer[:size]
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// sizes are the lengths that a payload may have.
func (k kind) sizes() (least, most uint32, ok bool) {
	switch k {
	case kindHello:
		return 1, 1, true
	case kindOpen, kindClose, kindEnd, kindReset:
		return 0, 0, true
	case kindPacket:
		return 2, maxPayload, true
	case kindData:
		return 1, maxData, true
	case kindCredit, kindResize:
		return 4, 4, true
	}
	return 0, 0, false
}

// shape is what a passed descriptor is.
type shape byte

// The shapes, as the kernel tells them of the descriptor that was passed.
const (
	shapeReader   shape = 'r' // the end of a pipe that is read from
	shapeWriter   shape = 'w' // the end of a pipe that is written to
	shapeSocket   shape = 's' // a connected stream socket
	shapeTerminal shape = 't' // the master of a terminal
	shapeFile     shape = 'f' // a file whose content is to be read
	shapeBlank    shape = 'b' // a file that is to be filled before the answer
)

func (s shape) known() bool {
	switch s {
	case shapeReader, shapeWriter, shapeSocket, shapeTerminal, shapeFile, shapeBlank:
		return true
	}
	return false
}

// riding is a descriptor that a packet carries, and the stream that stands for it.
type riding struct {
	shape  shape
	stream uint32
}

// appendPacket is the payload of a packet.
func appendPacket(b []byte, rides []riding, text []byte) []byte {
	b = append(b, byte(len(rides)))
	for _, r := range rides {
		b = append(b, byte(r.shape))
		b = binary.BigEndian.AppendUint32(b, r.stream)
	}
	return append(b, text...)
}

// parsePacket is the other way round; the text is not copied.
func parsePacket(payload []byte) (rides []riding, packet dialhome.Packet, err error) {
	count := int(payload[0])
	rest := payload[1:]
	if count > maxRiding || len(rest) < count*ridingSize {
		return nil, packet, &brokenError{"a packet that is cut off"}
	}
	for ; count > 0; count-- {
		r := riding{shape(rest[0]), binary.BigEndian.Uint32(rest[1:])}
		if !r.shape.known() {
			return nil, packet, &brokenError{"a descriptor of no known kind"}
		}
		rides, rest = append(rides, r), rest[ridingSize:]
	}
	packet, err = dialhome.ParsePacket(rest)
	return rides, packet, err
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
