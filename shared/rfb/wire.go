// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"encoding/binary"
	"fmt"
)

// Bounds on what the other side may declare (rules R4 and X31).
const (
	MaxCutText   = 256 << 10 // bytes of one clipboard message
	MaxEncodings = 1024      // entries of one SetEncodings
	MaxFence     = 64        // bytes of a fence's payload (rfbproto)
	maxName      = 256       // bytes of a desktop's name that are kept
	maxReason    = 4 << 10   // bytes of a name or reason that are accepted
	maxCursorPx  = 256       // width and height of a cursor
)

// Size is a width and height in pixels.
type Size struct{ WidthPx, HeightPx int }

func (s Size) String() string { return fmt.Sprintf("%dx%d", s.WidthPx, s.HeightPx) }

// Within reports whether s is no wider and no higher than most.
func (s Size) Within(most Size) bool {
	return s.WidthPx <= most.WidthPx && s.HeightPx <= most.HeightPx
}

// MaxSize is the largest desktop accepted from a server.
var MaxSize = Size{7680, 4320}

// Encoding numbers an encoding or, below zero, an extension that the client
// announces with SetEncodings.
type Encoding int32

// Encodings and pseudo-encodings named in this project (RFC 6143 section 7.7,
// rfbproto).
const (
	Raw                  Encoding = 0
	CopyRect             Encoding = 1
	Hextile              Encoding = 5
	Tight                Encoding = 7
	ZRLE                 Encoding = 16
	DesktopSize          Encoding = -223
	LastRect             Encoding = -224
	Cursor               Encoding = -239
	XCursor              Encoding = -240
	CompressLevel0       Encoding = -256 // the first of ten
	QEMUKey              Encoding = -258
	LEDState             Encoding = -261
	DesktopName          Encoding = -307
	ExtendedDesktopSize  Encoding = -308
	Fence                Encoding = -312
	ContinuousUpdates    Encoding = -313
	CursorWithAlpha      Encoding = -314
	ExtendedMouseButtons Encoding = -316
	ExtendedClipboard    Encoding = -0x3f5e1a32 // 0xc0a1e5ce
	VMwareCursor         Encoding = 0x574d5664
)

// PixelFormat is how a pixel lies in a stream (RFC 6143 section 7.4).
type PixelFormat struct {
	BitsPerPixel, Depth             uint8
	BigEndian, TrueColour           bool
	RedMax, GreenMax, BlueMax       uint16
	RedShift, GreenShift, BlueShift uint8
}

// RGBX is 32-bit pixels whose bytes are red, green, blue and one unused: the
// order of image.RGBA.
var RGBX = PixelFormat{
	BitsPerPixel: 32, Depth: 24, TrueColour: true,
	RedMax: 255, GreenMax: 255, BlueMax: 255,
	RedShift: 0, GreenShift: 8, BlueShift: 16,
}

const pixelFormatLen = 16

// Append writes the 16 bytes:
//
//	bits/pixel, depth, big-endian, true-colour, max R, G, B (16 bits each),
//	shift R, G, B, 3 bytes of padding
func (f PixelFormat) Append(b []byte) []byte {
	b = append(b, f.BitsPerPixel, f.Depth, flag(f.BigEndian), flag(f.TrueColour))
	b = binary.BigEndian.AppendUint16(b, f.RedMax)
	b = binary.BigEndian.AppendUint16(b, f.GreenMax)
	b = binary.BigEndian.AppendUint16(b, f.BlueMax)
	return append(b, f.RedShift, f.GreenShift, f.BlueShift, 0, 0, 0)
}

// parsePixelFormat reads the 16 bytes that Append writes.
func parsePixelFormat(b []byte) PixelFormat {
	return PixelFormat{
		BitsPerPixel: b[0], Depth: b[1], BigEndian: b[2] != 0, TrueColour: b[3] != 0,
		RedMax:   binary.BigEndian.Uint16(b[4:]),
		GreenMax: binary.BigEndian.Uint16(b[6:]),
		BlueMax:  binary.BigEndian.Uint16(b[8:]),
		RedShift: b[10], GreenShift: b[11], BlueShift: b[12],
	}
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
