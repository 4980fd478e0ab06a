// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"image"
	"image/png"
	"math"
	"sync"
)

// Format is how a picture is written.
type Format string

// The formats of Encode.
const (
	PNG  Format = "png"
	JPEG Format = "jpeg"
)

// ThumbnailQuality is what a thumbnail is written with, as JPEG (rule R11).
const ThumbnailQuality = 72

var thumbnailSize = Size{960, 600}

// Thumbnail is img, made as small as a thumbnail is: at most 960x600.
func Thumbnail(img *image.RGBA) *image.RGBA { return Scale(img, Fit(sizeOf(img), thumbnailSize)) }

// Encode writes img. Quality, from 1 to 100, is for JPEG alone.
func Encode(img *image.RGBA, format Format, quality int) ([]byte, error) {
	var data []byte
	var err error
	switch format {
	case PNG:
		var out bytes.Buffer
		err = pngEncoder.Encode(&out, img)
		data = out.Bytes()
	case JPEG:
		data, err = encodeJPEG(img, quality)
	default:
		err = fmt.Errorf("%q is not one of png, jpeg", string(format))
	}
	if err != nil {
		return nil, fmt.Errorf("encode picture: %w", err)
	}
	return data, nil
}

var pngEncoder = png.Encoder{CompressionLevel: png.BestSpeed, BufferPool: new(pngBuffers)}

// pngBuffers keeps the encoder's large buffers between pictures.
type pngBuffers struct{ pool sync.Pool }

func (p *pngBuffers) Get() *png.EncoderBuffer {
	b, _ := p.pool.Get().(*png.EncoderBuffer)
	return b
}

func (p *pngBuffers) Put(b *png.EncoderBuffer) { p.pool.Put(b) }

// Hash is 32 hex digits that are equal for equal pictures.
func Hash(img *image.RGBA) string {
	h := sha256.New()
	width, height := img.Rect.Dx(), img.Rect.Dy()
	h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height)))
	for y := range height {
		h.Write(img.Pix[y*img.Stride:][:4*width])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Crop is the part of img inside area; both share their pixels.
func Crop(img *image.RGBA, area image.Rectangle) *image.RGBA {
	return img.SubImage(area).(*image.RGBA)
}

// Fit is the largest size of the same shape as s that lies within box. It is never
// larger than s and never less than one pixel.
func Fit(s, box Size) Size {
	if s.Within(box) {
		return s
	}
	ratio := min(float64(box.WidthPx)/float64(s.WidthPx), float64(box.HeightPx)/float64(s.HeightPx))
	return Shrink(s, ratio)
}

// Shrink is s times factor, rounded, and never less than one pixel.
func Shrink(s Size, factor float64) Size {
	return Size{
		WidthPx:  max(1, int(math.Round(float64(s.WidthPx)*factor))),
		HeightPx: max(1, int(math.Round(float64(s.HeightPx)*factor))),
	}
}

func sizeOf(img *image.RGBA) Size { return Size{img.Rect.Dx(), img.Rect.Dy()} }
