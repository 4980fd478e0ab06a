// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"image"
	"sync"
)

// Scale shrinks img to the given size: every pixel of the result is the mean of
// the area it stands for, with the parts of pixels at its edges counted as such.
// The result is opaque and starts at 0,0. A size that is not smaller gives img
// itself, and so does an empty one.
func Scale(img *image.RGBA, to Size) *image.RGBA {
	from := sizeOf(img)
	if to == from || !to.Within(from) || to.WidthPx <= 0 || to.HeightPx <= 0 {
		return img
	}
	s := scaling{
		from: img, to: image.NewRGBA(image.Rect(0, 0, to.WidthPx, to.HeightPx)),
		columns: spans(from.WidthPx, to.WidthPx), rows: spans(from.HeightPx, to.HeightPx),
	}
	half := to.HeightPx / 2
	var group sync.WaitGroup
	group.Go(func() { s.strip(0, half) })
	s.strip(half, to.HeightPx)
	group.Wait()
	return s.to
}

// scaling is one call of Scale.
type scaling struct {
	from, to      *image.RGBA
	columns, rows []span
}

// strip makes the rows of the result from start up to end.
func (s scaling) strip(start, end int) {
	width := s.to.Rect.Dx()
	sum, line := make([]uint32, 3*width), make([]uint32, 3*width)
	have := -1 // the row that line holds
	for y := start; y < end; y++ {
		clear(sum)
		for i := s.rows[y].first; i <= s.rows[y].last; i++ {
			if i != have {
				shrinkLine(line, s.from.Pix[i*s.from.Stride:][:4*s.from.Rect.Dx()], s.columns)
				have = i
			}
			addLine(sum, line, s.rows[y].weight(i))
		}
		writeLine(s.to.Pix[y*s.to.Stride:][:4*width], sum)
	}
}

// span is the run of source pixels that one pixel of the result stands for. The
// weights of a run add up to 1<<weightBits.
type span struct {
	first, last             int
	firstPart, part, lastPt uint32
}

// A weight has 16 bits, so that the mean of a thousand pixels is still one. Between
// the two directions a colour keeps 8 bits behind the point: 32 bits hold it all.
const (
	weightBits = 16
	lineBits   = 8
)

func (s span) weight(i int) uint32 {
	switch i {
	case s.first:
		return s.firstPart
	case s.last:
		return s.lastPt
	default:
		return s.part
	}
}

// spans cuts from pixels into to runs. In units of 1/to of a source pixel, run i
// reaches from i*from to (i+1)*from.
func spans(from, to int) []span {
	list := make([]span, to)
	for i := range list {
		start, end := i*from, (i+1)*from
		s := span{first: start / to, last: (end - 1) / to}
		share := func(n int) uint32 { return uint32(n << weightBits / from) }
		s.part = share(to)
		s.lastPt = share(end - s.last*to)
		// What rounding lost goes to the first pixel.
		middle := uint32(max(0, s.last-s.first-1))
		s.firstPart = 1<<weightBits - middle*s.part - s.lastPt
		if s.first == s.last {
			s.firstPart, s.lastPt = 1<<weightBits, 0
		}
		list[i] = s
	}
	return list
}

// shrinkLine makes one row narrower. Its values have lineBits behind the point.
func shrinkLine(line []uint32, pix []byte, columns []span) {
	for x, s := range columns {
		p := pix[4*s.first : 4*s.last+4]
		r, g, b := uint32(p[0])*s.firstPart, uint32(p[1])*s.firstPart, uint32(p[2])*s.firstPart
		if s.last > s.first {
			for q := p[4 : len(p)-4]; len(q) >= 4; q = q[4:] {
				r += uint32(q[0]) * s.part
				g += uint32(q[1]) * s.part
				b += uint32(q[2]) * s.part
			}
			q := p[len(p)-4:]
			r += uint32(q[0]) * s.lastPt
			g += uint32(q[1]) * s.lastPt
			b += uint32(q[2]) * s.lastPt
		}
		out := line[3*x : 3*x+3]
		const drop = weightBits - lineBits
		out[0], out[1], out[2] = r>>drop, g>>drop, b>>drop
	}
}

func addLine(sum, line []uint32, weight uint32) {
	line = line[:len(sum)]
	for i := range sum {
		sum[i] += line[i] * weight
	}
}

// writeLine rounds the sums to 8 bits.
func writeLine(pix []byte, sum []uint32) {
	for x := 0; len(sum) >= 3; x, sum = x+4, sum[3:] {
		p := pix[x : x+4]
		p[0], p[1], p[2], p[3] = level(sum[0]), level(sum[1]), level(sum[2]), 0xff
	}
}

func level(sum uint32) byte {
	const point = weightBits + lineBits
	return byte((uint64(sum) + 1<<(point-1)) >> point)
}
