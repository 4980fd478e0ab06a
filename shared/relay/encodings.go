// SPDX-License-Identifier: MPL-2.0

package relay

import "github.com/botscreen/botscreen/shared/rfb"

// Ranges of pseudo-encodings that only set how the picture is compressed
// (rfbproto): JPEG quality, compression level, TigerVNC's finer quality and chroma.
const (
	qualityLow, qualityHigh         = rfb.Encoding(-32), rfb.Encoding(-23)
	compressionLow, compressionHigh = rfb.Encoding(-256), rfb.Encoding(-247)
	fineLow, fineHigh               = rfb.Encoding(-512), rfb.Encoding(-412)
	chromaLow, chromaHigh           = rfb.Encoding(-768), rfb.Encoding(-763)
)

// carried reports whether a viewer may ask its server for an encoding: what a
// well-kept viewer decodes (threats.md X32), and only extensions whose messages the
// relay carries (rule R7). The answer never changes during a connection, whoever
// holds: to withdraw one while its confirmation is on the way makes Xvnc hang up
// (RFB-14). Keycodes says that the viewer's keyboard is the desktop's (rule R13).
func carried(e rfb.Encoding, keycodes bool) bool {
	switch e {
	case rfb.Raw, rfb.CopyRect, rfb.Tight, rfb.ZRLE,
		rfb.Cursor, rfb.XCursor, rfb.CursorWithAlpha, rfb.VMwareCursor,
		rfb.DesktopSize, rfb.ExtendedDesktopSize, rfb.LastRect,
		rfb.Fence, rfb.ContinuousUpdates, rfb.LEDState:
		return true
	case rfb.QEMUKey:
		return keycodes
	}
	return e >= qualityLow && e <= qualityHigh || e >= compressionLow && e <= compressionHigh ||
		e >= fineLow && e <= fineHigh || e >= chromaLow && e <= chromaHigh
}

// announced is which extensions a viewer's server knows of.
type announced struct {
	fence, continuous, resize, cursor bool
}

// announcedBy reads a SetEncodings message that has been filtered.
func announcedBy(m rfb.Message) announced {
	var a announced
	for e := range m.Encodings() {
		switch e {
		case rfb.Fence:
			a.fence = true
		case rfb.ContinuousUpdates:
			a.continuous = true
		case rfb.ExtendedDesktopSize:
			a.resize = true
		case rfb.Cursor, rfb.XCursor, rfb.CursorWithAlpha, rfb.VMwareCursor:
			a.cursor = true
		}
	}
	return a
}
