// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/jpeg"
	"sync"
)

// encodeJPEG writes img in two halves at once, which is most of what a thumbnail takes. A
// restart marker stands between them: a decoder forgets there what it has seen, as it does
// at the beginning (ITU-T T.81, sections B.2.4.4 and F.2.1.3.1).
func encodeJPEG(img *image.RGBA, quality int) ([]byte, error) {
	size := sizeOf(img)
	blocks := blocksIn(size.HeightPx)
	across := blocksIn(size.WidthPx)
	upper := (blocks + 1) / 2 // the lower half needs no second restart, so it is never the larger one
	if blocks < 2 || across*upper > maxRestartInterval {
		return encodePart(img, quality)
	}
	top := image.Rectangle{Min: img.Rect.Min, Max: image.Pt(img.Rect.Max.X, img.Rect.Min.Y+upper*blockPx)}
	bottom := image.Rectangle{Min: image.Pt(img.Rect.Min.X, top.Max.Y), Max: img.Rect.Max}
	var first, second []byte
	var firstErr, secondErr error
	var group sync.WaitGroup
	group.Go(func() { first, firstErr = encodePart(Crop(img, top), quality) })
	second, secondErr = encodePart(Crop(img, bottom), quality)
	group.Wait()
	if err := errors.Join(firstErr, secondErr); err != nil {
		return nil, err
	}
	return joinJPEG(first, second, size.HeightPx, across*upper)
}

const (
	// blockPx is the side of what the encoder of the standard library codes as a unit: it
	// takes a colour for four pixels.
	blockPx            = 16
	maxRestartInterval = 1<<16 - 1
)

// The markers of T.81, table B.1, that a join meets or writes.
const (
	markerSOF0 = 0xc0
	markerRST0 = 0xd0
	markerEOI  = 0xd9
	markerSOS  = 0xda
	markerDRI  = 0xdd
)

func blocksIn(pixels int) int { return (pixels + blockPx - 1) / blockPx }

func encodePart(img *image.RGBA, quality int) ([]byte, error) {
	var out bytes.Buffer
	err := jpeg.Encode(&out, img, &jpeg.Options{Quality: quality})
	return out.Bytes(), err
}

// joinJPEG puts the lower picture below the upper one, which has interval units and as many
// columns. Only the frame's height and the scan of the lower one differ.
func joinJPEG(upper, lower []byte, heightPx, interval int) ([]byte, error) {
	top, err := partsOf(upper)
	if err != nil {
		return nil, err
	}
	bottom, err := partsOf(lower)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(upper)+len(lower))
	out = append(out, upper[:top.sos]...)
	binary.BigEndian.PutUint16(out[top.sof+5:], uint16(heightPx)) // behind the marker, a length and the precision (B.2.2)
	out = append(out, 0xff, markerDRI, 0, 4)
	out = binary.BigEndian.AppendUint16(out, uint16(interval))
	out = append(out, upper[top.sos:len(upper)-2]...) // without its end of image
	out = append(out, 0xff, markerRST0)
	return append(out, lower[bottom.scan:]...), nil
}

// jpegParts are offsets in a picture of the standard library's encoder: of the frame's
// marker, of the scan's marker, and of the scan's data, which reach to the end of image.
type jpegParts struct{ sof, sos, scan int }

func partsOf(p []byte) (jpegParts, error) {
	parts := jpegParts{sof: -1}
	for at := 2; at+4 <= len(p) && p[at] == 0xff; { // behind the start of image
		next := at + 2 + int(binary.BigEndian.Uint16(p[at+2:]))
		switch p[at+1] {
		case markerSOF0:
			parts.sof = at
		case markerSOS:
			parts.sos, parts.scan = at, next
			if parts.sof < 0 || next > len(p)-2 || p[len(p)-2] != 0xff || p[len(p)-1] != markerEOI {
				return parts, errors.New("the halves of a JPEG do not end as expected")
			}
			return parts, nil
		}
		at = next
	}
	return parts, errors.New("the halves of a JPEG have no baseline scan")
}
