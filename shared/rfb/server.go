// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"
)

// Types of the messages a server sends.
const (
	TypeFramebufferUpdate   = 0
	TypeSetColourMapEntries = 1
	TypeBell                = 2
	TypeServerCutText       = 3
	TypeEndOfContinuous     = 150
)

// ServerMessage is what one message of the server said besides pixels.
type ServerMessage struct {
	Type uint8
	// Resized says that the desktop has another size or layout; the rest of the
	// update's pixels lie in the new one.
	Resized *Layout
	// Acknowledged are the announced extensions that the server says it speaks.
	Acknowledged []Encoding
	Fence        FenceMessage // of TypeFence
}

// Layout is what a DesktopSize or ExtendedDesktopSize rectangle says.
type Layout struct {
	Size    Size
	Screens []Screen // of the extended form
	// Reason is who asked: 0 the server, 1 this client, 2 another. Status is 0 for
	// done and else why the resize was refused (rfbproto).
	Reason, Status int
}

// pixels takes the picture's parts as they are read.
type pixels interface {
	// raw reads the area's pixels, 4 bytes each, from r to their end.
	raw(r io.Reader, area image.Rectangle) error
	copied(area image.Rectangle, from image.Point)
	resized(Size) error
}

// serverReader reads a server's messages. It believes no length and no place: a
// picture is never larger than most, a rectangle lies inside it.
type serverReader struct {
	r         *bufio.Reader
	offset    int64 // in the stream
	at        int64 // of the message being read
	kind      uint8 // of the message being read
	size      Size
	most      Size
	announced []Encoding
}

// Size of the buffer before the connection; the bulk of a picture goes around it.
const serverBuf = 8 << 10

func newServerReader(r io.Reader, size, most Size, announced []Encoding) *serverReader {
	return &serverReader{r: bufio.NewReaderSize(r, serverBuf), size: size, most: most, announced: announced}
}

// Read counts, so that errors can say where.
func (s *serverReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.offset += int64(n)
	return n, err
}

func (s *serverReader) full(b []byte) error {
	_, err := io.ReadFull(s, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // callers stand inside a message
	}
	return err
}

func (s *serverReader) skip(n int64) error {
	_, err := io.CopyN(io.Discard, s, n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (s *serverReader) refuse(format string, args ...any) error {
	return &ProtocolError{Offset: s.at, Type: s.kind, Reason: fmt.Sprintf(format, args...)}
}

// next reads one message. Pixels go to sink.
func (s *serverReader) next(sink pixels) (ServerMessage, error) {
	s.at = s.offset
	kind, err := s.r.ReadByte()
	if err != nil {
		return ServerMessage{}, err
	}
	s.offset++
	s.kind = kind
	msg := ServerMessage{Type: kind}
	switch kind {
	case TypeFramebufferUpdate:
		err = s.update(&msg, sink)
	case TypeSetColourMapEntries:
		err = s.colourMap()
	case TypeBell, TypeEndOfContinuous:
	case TypeServerCutText:
		err = s.cutText()
	case TypeFence:
		err = s.fence(&msg)
	case TypeXVP:
		err = s.skip(3)
	default:
		err = s.refuse("has no known length")
	}
	return msg, err
}

// colourMap skips entries that a true-colour client has no use for.
func (s *serverReader) colourMap() error {
	var b [5]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	return s.skip(6 * int64(binary.BigEndian.Uint16(b[3:])))
}

// cutText skips the clipboard, which never travels in RFB here.
func (s *serverReader) cutText() error {
	var b [7]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	length := int64(int32(binary.BigEndian.Uint32(b[3:])))
	if length < 0 {
		length = -length
	}
	if length > MaxCutText {
		return s.refuse("carries %d bytes, at most %d", length, MaxCutText)
	}
	return s.skip(length)
}

func (s *serverReader) fence(msg *ServerMessage) error {
	var b [8]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	if b[7] > MaxFence {
		return s.refuse("carries %d bytes, at most %d", b[7], MaxFence)
	}
	msg.Fence = FenceMessage{Flags: binary.BigEndian.Uint32(b[3:]), Payload: make([]byte, b[7])}
	return s.full(msg.Fence.Payload)
}

// errLastRect ends an update before its count, which was a guess then.
var errLastRect = errors.New("last rectangle")

func (s *serverReader) update(msg *ServerMessage, sink pixels) error {
	var b [3]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	count := int(binary.BigEndian.Uint16(b[1:]))
	for range count {
		err := s.rect(msg, sink)
		if err == errLastRect {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rect reads one rectangle (RFC 6143 section 7.6.1):
//
//	x, y, width, height (16 bits each), encoding (32 bits), what that needs
func (s *serverReader) rect(msg *ServerMessage, sink pixels) error {
	var b [12]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	x, y := int(binary.BigEndian.Uint16(b[:])), int(binary.BigEndian.Uint16(b[2:]))
	width, height := int(binary.BigEndian.Uint16(b[4:])), int(binary.BigEndian.Uint16(b[6:]))
	area := image.Rect(x, y, x+width, y+height)
	encoding := Encoding(int32(binary.BigEndian.Uint32(b[8:])))
	if encoding != Raw && !slices.Contains(s.announced, encoding) {
		return s.refuse("has a rectangle in encoding %d, which was not asked for", encoding)
	}
	if encoding >= 0 {
		return s.picture(sink, encoding, area)
	}
	return s.pseudo(msg, sink, encoding, area)
}

func (s *serverReader) picture(sink pixels, encoding Encoding, area image.Rectangle) error {
	if err := s.inside(area); err != nil {
		return err
	}
	switch encoding {
	case Raw:
		return sink.raw(s, area)
	case CopyRect:
		return s.copyRect(sink, area)
	default:
		return s.refuse("has a rectangle in encoding %d, which has no decoder", encoding)
	}
}

func (s *serverReader) copyRect(sink pixels, area image.Rectangle) error {
	var b [4]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	from := image.Pt(int(binary.BigEndian.Uint16(b[:])), int(binary.BigEndian.Uint16(b[2:])))
	if err := s.inside(area.Sub(area.Min).Add(from)); err != nil {
		return err
	}
	sink.copied(area, from)
	return nil
}

func (s *serverReader) inside(area image.Rectangle) error {
	if area.Max.X > s.size.WidthPx || area.Max.Y > s.size.HeightPx {
		return s.refuse("has a rectangle %v outside of the %s picture", area, s.size)
	}
	return nil
}

// pseudo reads a rectangle whose place means something else.
func (s *serverReader) pseudo(msg *ServerMessage, sink pixels, encoding Encoding, area image.Rectangle) error {
	switch encoding {
	case LastRect:
		return errLastRect
	case DesktopSize:
		return s.resize(msg, sink, Layout{Size: Size{area.Dx(), area.Dy()}})
	case ExtendedDesktopSize:
		return s.extendedSize(msg, sink, area)
	case QEMUKey, ExtendedMouseButtons:
		msg.Acknowledged = append(msg.Acknowledged, encoding)
		return nil
	case LEDState:
		return s.skip(1)
	case Cursor:
		return s.cursor(area)
	case DesktopName:
		return s.name()
	default:
		return s.refuse("has a rectangle in encoding %d, which has no decoder", encoding)
	}
}

func (s *serverReader) resize(msg *ServerMessage, sink pixels, layout Layout) error {
	if !layout.Size.Within(s.most) || layout.Size.WidthPx == 0 || layout.Size.HeightPx == 0 {
		return s.refuse("resizes the picture to %s, want 1x1 to %s", layout.Size, s.most)
	}
	msg.Resized = &layout
	s.size = layout.Size
	return sink.resized(layout.Size)
}

// extendedSize reads: count (8 bits), 3 bytes of padding, 16 bytes per screen. A
// refused resize leaves the picture as it is.
func (s *serverReader) extendedSize(msg *ServerMessage, sink pixels, area image.Rectangle) error {
	var head [4]byte
	if err := s.full(head[:]); err != nil {
		return err
	}
	layout := Layout{Size: Size{area.Dx(), area.Dy()}, Reason: area.Min.X, Status: area.Min.Y}
	var b [screenLen]byte
	for range head[0] {
		if err := s.full(b[:]); err != nil {
			return err
		}
		layout.Screens = append(layout.Screens, parseScreen(b[:]))
	}
	if layout.Status != 0 || layout.Size == s.size {
		msg.Resized = &layout
		return nil
	}
	return s.resize(msg, sink, layout)
}

// cursor skips the shape: pixels and a mask of one bit each.
func (s *serverReader) cursor(area image.Rectangle) error {
	width, height := int64(area.Dx()), int64(area.Dy())
	if width > maxCursorPx || height > maxCursorPx {
		return s.refuse("has a cursor of %dx%d, at most %dx%d", width, height, maxCursorPx, maxCursorPx)
	}
	return s.skip(4*width*height + (width+7)/8*height)
}

func (s *serverReader) name() error {
	var b [4]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(b[:])
	if length > maxReason {
		return s.refuse("has a name of %d bytes, at most %d", length, maxReason)
	}
	return s.skip(int64(length))
}
