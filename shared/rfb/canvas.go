// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"fmt"
	"image"
	"io"
	"math/bits"
)

// maxPictures bounds how many pictures' worth of pixels one may take: a server
// that repaints for ever is not drawing an answer.
const maxPictures = 16

// maxResizes bounds how often a desktop may change its size within one picture.
const maxResizes = 8

// canvas collects one picture of a wanted area and knows what is still missing.
// Nothing is allocated before the first pixel comes.
type canvas struct {
	wanted image.Rectangle
	whole  bool // wanted follows the desktop's size
	img    *image.RGBA
	pix    []byte // of an earlier size, to be used again
	// covered has one bit per pixel of wanted, rows of whole words; nil means that
	// all of it is missing, or, when done, nothing.
	covered []uint64
	missing int
	row     []byte // for pixels that are not wanted
	budget  int64  // pixels still accepted
	resizes int
}

func newCanvas(wanted image.Rectangle, whole bool) *canvas {
	c := &canvas{whole: whole}
	c.restart(wanted)
	return c
}

func (c *canvas) restart(wanted image.Rectangle) {
	c.wanted, c.missing, c.covered = wanted, wanted.Dx()*wanted.Dy(), nil
	c.budget = maxPictures * int64(c.missing)
	if c.img != nil {
		c.pix, c.img = c.img.Pix, nil
	}
}

func (c *canvas) done() bool { return c.missing == 0 }

func (c *canvas) resized(size Size) error {
	if c.resizes++; c.resizes > maxResizes {
		return fmt.Errorf("%w: the desktop changed its size more than %d times", ErrIncomplete, maxResizes)
	}
	screen := image.Rect(0, 0, size.WidthPx, size.HeightPx)
	if !c.whole {
		screen = c.wanted.Intersect(screen)
	}
	c.restart(screen)
	return nil
}

// image makes room for the pixels. What an earlier size left there is overwritten
// before the picture is whole.
func (c *canvas) image() *image.RGBA {
	if c.img != nil {
		return c.img
	}
	stride := 4 * c.wanted.Dx()
	if size := stride * c.wanted.Dy(); size <= cap(c.pix) {
		c.img = &image.RGBA{Pix: c.pix[:size], Stride: stride, Rect: c.wanted}
	} else {
		c.img = image.NewRGBA(c.wanted)
	}
	c.pix = nil
	return c.img
}

func (c *canvas) raw(r io.Reader, area image.Rectangle) error {
	c.budget -= int64(area.Dx()) * int64(area.Dy())
	if c.budget < 0 {
		return fmt.Errorf("%w: more than %d times its pixels came", ErrIncomplete, maxPictures)
	}
	use := area.Intersect(c.wanted)
	if use.Empty() {
		return c.discard(r, 4*area.Dx(), area.Dy())
	}
	if err := c.readRows(r, area, use); err != nil {
		return err
	}
	c.cover(use)
	return nil
}

// readRows reads an area's rows and keeps what lies in use.
func (c *canvas) readRows(r io.Reader, area, use image.Rectangle) error {
	img := c.image()
	if use == area && use.Dx() == c.wanted.Dx() {
		// Rows of full width lie behind each other in both places.
		return readPixels(r, img.Pix[img.PixOffset(use.Min.X, use.Min.Y):][:4*use.Dx()*use.Dy()])
	}
	if err := c.discard(r, 4*area.Dx(), use.Min.Y-area.Min.Y); err != nil {
		return err
	}
	before, after := 4*(use.Min.X-area.Min.X), 4*(area.Max.X-use.Max.X)
	for y := use.Min.Y; y < use.Max.Y; y++ {
		if err := c.discard(r, before, 1); err != nil {
			return err
		}
		at := img.PixOffset(use.Min.X, y)
		if err := readPixels(r, img.Pix[at:at+4*use.Dx()]); err != nil {
			return err
		}
		if err := c.discard(r, after, 1); err != nil {
			return err
		}
	}
	return c.discard(r, 4*area.Dx(), area.Max.Y-use.Max.Y)
}

// readPixels reads RGBX and makes it opaque.
func readPixels(r io.Reader, pix []byte) error {
	if _, err := io.ReadFull(r, pix); err != nil {
		return unexpected(err)
	}
	for i := 3; i < len(pix); i += 4 {
		pix[i] = 0xff
	}
	return nil
}

func (c *canvas) discard(r io.Reader, width, rows int) error {
	if width == 0 {
		return nil
	}
	if len(c.row) < width {
		c.row = make([]byte, width) // bounded by the picture's width
	}
	for range rows {
		if _, err := io.ReadFull(r, c.row[:width]); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// copied moves pixels that are there. What is copied from elsewhere counts as
// missing: a full update does not need it.
func (c *canvas) copied(area image.Rectangle, from image.Point) {
	shift := area.Min.Sub(from)
	// Only what is wanted on both ends.
	use := area.Intersect(c.wanted).Intersect(c.wanted.Add(shift))
	if use.Empty() || c.img == nil {
		return
	}
	top, bottom, step := use.Min.Y, use.Max.Y, 1
	if shift.Y > 0 { // rows further down first, so that none is overwritten unread
		top, bottom, step = use.Max.Y-1, use.Min.Y-1, -1
	}
	for y := top; y != bottom; y += step {
		to, at := c.img.PixOffset(use.Min.X, y), c.img.PixOffset(use.Min.X-shift.X, y-shift.Y)
		copy(c.img.Pix[to:to+4*use.Dx()], c.img.Pix[at:at+4*use.Dx()])
	}
}

// cover marks an area inside wanted as there.
func (c *canvas) cover(area image.Rectangle) {
	if c.done() {
		return
	}
	if area == c.wanted {
		c.missing, c.covered = 0, nil
		return
	}
	stride := c.stride()
	if c.covered == nil {
		c.covered = make([]uint64, stride*c.wanted.Dy())
	}
	area = area.Sub(c.wanted.Min)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		c.missing -= setBits(c.covered[y*stride:(y+1)*stride], area.Min.X, area.Max.X)
	}
}

func (c *canvas) stride() int { return (c.wanted.Dx() + 63) / 64 }

// setBits sets the bits from start to before end and counts those that were not.
func setBits(words []uint64, start, end int) (fresh int) {
	for i := start / 64; i*64 < end; i++ {
		mask := ^uint64(0)
		if low := start - i*64; low > 0 {
			mask <<= low
		}
		if high := (i+1)*64 - end; high > 0 {
			mask &= ^uint64(0) >> high
		}
		fresh += bits.OnesCount64(mask &^ words[i])
		words[i] |= mask
	}
	return fresh
}

// gap is the smallest area that holds everything missing.
func (c *canvas) gap() image.Rectangle {
	if c.done() {
		return image.Rectangle{}
	}
	if c.covered == nil {
		return c.wanted
	}
	var gap image.Rectangle
	stride := c.stride()
	for y := range c.wanted.Dy() {
		row := c.covered[y*stride : (y+1)*stride]
		first, last := zeroBits(row, c.wanted.Dx())
		if first < last {
			gap = gap.Union(image.Rect(first, y, last, y+1))
		}
	}
	return gap.Add(c.wanted.Min)
}

// zeroBits finds the first clear bit of width and the place behind the last.
func zeroBits(words []uint64, width int) (first, last int) {
	first = width
	for i, word := range words {
		clear := ^word
		if over := (i+1)*64 - width; over > 0 {
			clear &= ^uint64(0) >> over
		}
		if clear == 0 {
			continue
		}
		first = min(first, i*64+bits.TrailingZeros64(clear))
		last = i*64 + bits.Len64(clear)
	}
	return first, last
}

// void drops pixels, for connections that want none.
type void struct{}

func (void) raw(r io.Reader, area image.Rectangle) error {
	_, err := io.CopyN(io.Discard, r, 4*int64(area.Dx())*int64(area.Dy()))
	return unexpected(err)
}
func (void) copied(image.Rectangle, image.Point) {}
func (void) resized(Size) error                  { return nil }
