// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"encoding/binary"
	"image"
	"iter"
)

// KeyEvent is message 4 or, with a Keycode, QEMU's 255/0. A key must be released
// in the form it was pressed (rule L7).
type KeyEvent struct {
	Down    bool
	Keysym  uint32
	Keycode uint32 // XT scan code
	QEMU    bool
}

// Append writes the message.
func (k KeyEvent) Append(b []byte) []byte {
	if !k.QEMU {
		b = append(b, TypeKeyEvent, flag(k.Down), 0, 0)
		return binary.BigEndian.AppendUint32(b, k.Keysym)
	}
	b = append(b, TypeQEMU, 0, 0, flag(k.Down))
	b = binary.BigEndian.AppendUint32(b, k.Keysym)
	return binary.BigEndian.AppendUint32(b, k.Keycode)
}

// Key reads a KeyEvent of either form.
func (m Message) Key() (KeyEvent, bool) {
	switch m[0] {
	case TypeKeyEvent:
		return KeyEvent{Down: m[1] != 0, Keysym: binary.BigEndian.Uint32(m[4:])}, true
	case TypeQEMU:
		return KeyEvent{
			Down:    binary.BigEndian.Uint16(m[2:]) != 0,
			Keysym:  binary.BigEndian.Uint32(m[4:]),
			Keycode: binary.BigEndian.Uint32(m[8:]),
			QEMU:    true,
		}, true
	}
	return KeyEvent{}, false
}

// PointerEvent is message 5.
type PointerEvent struct {
	Buttons uint16 // bit n is button n+1
	X, Y    uint16
	// Extended is the 7-byte form of encoding -316, which carries buttons above 8:
	// bit 7 of the mask marks it, and the buttons from 8 on are in the last byte.
	Extended bool
}

// Append writes the message. Without Extended only buttons 1 to 8 are carried.
func (p PointerEvent) Append(b []byte) []byte {
	mask := byte(p.Buttons)
	if p.Extended {
		mask |= 0x80
	}
	b = append(b, TypePointerEvent, mask)
	b = binary.BigEndian.AppendUint16(b, p.X)
	b = binary.BigEndian.AppendUint16(b, p.Y)
	if p.Extended {
		b = append(b, byte(p.Buttons>>7))
	}
	return b
}

// Pointer reads a PointerEvent of either length.
func (m Message) Pointer() (PointerEvent, bool) {
	if m[0] != TypePointerEvent {
		return PointerEvent{}, false
	}
	p := PointerEvent{
		Buttons: uint16(m[1]),
		X:       binary.BigEndian.Uint16(m[2:]),
		Y:       binary.BigEndian.Uint16(m[4:]),
	}
	if len(m) == 7 {
		p.Extended = true
		p.Buttons = p.Buttons&0x7f | uint16(m[6])<<7
	}
	return p, true
}

// Bits of the flags that begin an extended clipboard message (rfbproto).
const (
	ClipboardText    = 1 << 0
	ClipboardCaps    = 1 << 24
	ClipboardRequest = 1 << 25
	ClipboardPeek    = 1 << 26
	ClipboardNotify  = 1 << 27
	ClipboardProvide = 1 << 28
)

// CutText is message 6, classic (Latin-1) or extended.
type CutText struct {
	Extended bool
	Flags    uint32 // of the extended form
	Data     []byte // behind the flags
}

// Append writes the message. Data must fit MaxCutText together with the flags.
func (c CutText) Append(b []byte) []byte {
	b = append(b, TypeClientCutText, 0, 0, 0)
	if !c.Extended {
		b = binary.BigEndian.AppendUint32(b, uint32(len(c.Data)))
		return append(b, c.Data...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(-int32(4+len(c.Data)))) // negative marks the form
	b = binary.BigEndian.AppendUint32(b, c.Flags)
	return append(b, c.Data...)
}

// CutText reads message 6. Data is a part of the message.
func (m Message) CutText() (CutText, bool) {
	if m[0] != TypeClientCutText {
		return CutText{}, false
	}
	if int32(binary.BigEndian.Uint32(m[4:])) >= 0 {
		return CutText{Data: m[8:]}, true
	}
	return CutText{Extended: true, Flags: binary.BigEndian.Uint32(m[8:]), Data: m[12:]}, true
}

// Bits of a fence's flags (rfbproto).
const (
	FenceBlockBefore = 1 << 0
	FenceBlockAfter  = 1 << 1
	FenceSyncNext    = 1 << 2
	FenceRequest     = 1 << 31
)

// FenceMessage is message 248, in both directions the same.
type FenceMessage struct {
	Flags   uint32
	Payload []byte // at most MaxFence bytes
}

// Append writes the message.
func (f FenceMessage) Append(b []byte) []byte {
	b = append(b, TypeFence, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, f.Flags)
	b = append(b, byte(len(f.Payload)))
	return append(b, f.Payload...)
}

// Reply is the answer to a request: the flags that are understood, and the payload.
func (f FenceMessage) Reply() FenceMessage {
	f.Flags &= FenceBlockBefore | FenceBlockAfter | FenceSyncNext
	return f
}

// Fence reads message 248. The payload is a part of the message.
func (m Message) Fence() (FenceMessage, bool) {
	if m[0] != TypeFence {
		return FenceMessage{}, false
	}
	return FenceMessage{Flags: binary.BigEndian.Uint32(m[4:]), Payload: m[9:]}, true
}

// Screen is one monitor of a desktop.
type Screen struct {
	ID    uint32
	Area  image.Rectangle
	Flags uint32
}

const screenLen = 16

func (s Screen) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, s.ID)
	for _, n := range [4]int{s.Area.Min.X, s.Area.Min.Y, s.Area.Dx(), s.Area.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return binary.BigEndian.AppendUint32(b, s.Flags)
}

func parseScreen(b []byte) Screen {
	x, y := int(binary.BigEndian.Uint16(b[4:])), int(binary.BigEndian.Uint16(b[6:]))
	width, height := int(binary.BigEndian.Uint16(b[8:])), int(binary.BigEndian.Uint16(b[10:]))
	return Screen{
		ID:    binary.BigEndian.Uint32(b),
		Area:  image.Rect(x, y, x+width, y+height),
		Flags: binary.BigEndian.Uint32(b[12:]),
	}
}

// Resize is message 251, SetDesktopSize. Xvnc 1.12 dies of one from a connection
// that did not announce ExtendedDesktopSize (rule R5a).
type Resize struct {
	Size    Size
	Screens []Screen // at most 255
}

// Append writes the message.
func (r Resize) Append(b []byte) []byte {
	b = append(b, TypeSetDesktopSize, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Size.WidthPx))
	b = binary.BigEndian.AppendUint16(b, uint16(r.Size.HeightPx))
	b = append(b, byte(len(r.Screens)), 0)
	for _, s := range r.Screens {
		b = s.append(b)
	}
	return b
}

// Resize reads message 251.
func (m Message) Resize() (Resize, bool) {
	if m[0] != TypeSetDesktopSize {
		return Resize{}, false
	}
	r := Resize{Size: Size{int(binary.BigEndian.Uint16(m[2:])), int(binary.BigEndian.Uint16(m[4:]))}}
	for b := m[8:]; len(b) >= screenLen; b = b[screenLen:] {
		r.Screens = append(r.Screens, parseScreen(b))
	}
	return r, true
}

// UpdateRequest is message 3: pixels of an area, all of them or what changed.
type UpdateRequest struct {
	Incremental bool
	Area        image.Rectangle
}

// Append writes the message.
func (u UpdateRequest) Append(b []byte) []byte {
	b = append(b, TypeFramebufferUpdateRequest, flag(u.Incremental))
	for _, n := range [4]int{u.Area.Min.X, u.Area.Min.Y, u.Area.Dx(), u.Area.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return b
}

// UpdateRequest reads message 3.
func (m Message) UpdateRequest() (UpdateRequest, bool) {
	if m[0] != TypeFramebufferUpdateRequest {
		return UpdateRequest{}, false
	}
	x, y := int(binary.BigEndian.Uint16(m[2:])), int(binary.BigEndian.Uint16(m[4:]))
	width, height := int(binary.BigEndian.Uint16(m[6:])), int(binary.BigEndian.Uint16(m[8:]))
	return UpdateRequest{Incremental: m[1] != 0, Area: image.Rect(x, y, x+width, y+height)}, true
}

// AppendSetPixelFormat writes message 0.
func AppendSetPixelFormat(b []byte, f PixelFormat) []byte {
	return f.Append(append(b, TypeSetPixelFormat, 0, 0, 0))
}

// AppendSetEncodings writes message 2. At most MaxEncodings are read again.
func AppendSetEncodings(b []byte, encodings []Encoding) []byte {
	b = append(b, TypeSetEncodings, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(encodings)))
	for _, e := range encodings {
		b = binary.BigEndian.AppendUint32(b, uint32(e))
	}
	return b
}

// AppendContinuousUpdates writes message 150, legal only after the server has
// acknowledged ContinuousUpdates.
func AppendContinuousUpdates(b []byte, on bool, area image.Rectangle) []byte {
	b = append(b, TypeEnableContinuousUpdates, flag(on))
	for _, n := range [4]int{area.Min.X, area.Min.Y, area.Dx(), area.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return b
}

// Encodings yields what a SetEncodings message lists, in its order.
func (m Message) Encodings() iter.Seq[Encoding] {
	return func(yield func(Encoding) bool) {
		if m[0] != TypeSetEncodings {
			return
		}
		for b := m[4:]; len(b) >= 4; b = b[4:] {
			if !yield(Encoding(binary.BigEndian.Uint32(b))) {
				return
			}
		}
	}
}

// AppendFiltered writes a SetEncodings message with only those entries that keep
// accepts, in the same order (rule R7).
func (m Message) AppendFiltered(b []byte, keep func(Encoding) bool) []byte {
	start := len(b)
	b = append(b, TypeSetEncodings, 0, 0, 0)
	count := 0
	for e := range m.Encodings() {
		if keep(e) {
			b = binary.BigEndian.AppendUint32(b, uint32(e))
			count++
		}
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(count))
	return b
}
