// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
)

// storedPixels is how large a picture may be to be stored uncompressed: up to four
// megabytes of disk for some milliseconds less at the first start of a profile.
const storedPixels = 2560 * 1600

// ensureWallpaper makes the picture at path, a PNG of exactly the desktop's
// size so that nothing scales it, unless it is there already.
func ensureWallpaper(path string, widthPx, heightPx int) error {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make wallpaper: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make wallpaper: %w", err)
	}
	defer root.Close()
	if pictureHasSize(root, name, widthPx, heightPx) {
		return nil
	}
	var picture bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.NoCompression}
	if widthPx*heightPx > storedPixels {
		encoder.CompressionLevel = png.BestSpeed
	}
	if err := encoder.Encode(&picture, drawWallpaper(widthPx, heightPx)); err != nil {
		return fmt.Errorf("make wallpaper: %w", err)
	}
	if err := replace(root, name, picture.Bytes()); err != nil {
		return fmt.Errorf("make wallpaper: %w", err)
	}
	return nil
}

// pictureHasSize reads only as much of the file as tells its size.
func pictureHasSize(root *os.Root, name string, widthPx, heightPx int) bool {
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	const header = 1 << 10 // what stands before the pixels: IHDR and PLTE, PNG specification section 11.2
	size, err := png.DecodeConfig(io.LimitReader(f, header))
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && size.Width == widthPx && size.Height == heightPx
}

// wallpaperStops are the colours from top to bottom: dusk over a dark sea. The
// end is dark enough for white icon labels and light enough to show shadows.
var wallpaperStops = []struct {
	at      float64
	r, g, b float64
}{
	{0.00, 22, 32, 54},
	{0.40, 40, 62, 98},
	{0.70, 78, 100, 138},
	{0.90, 134, 132, 154},
	{1.00, 172, 148, 150},
}

// dither spreads the rounding of colours over 4x4 pixels, so that the soft
// gradient shows no bands. (Bayer's ordered pattern.)
var dither = [4][4]float64{{0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}}

// drawWallpaper is a vertical gradient. A palette holds all its colours, so a pixel is one
// byte: what a file of all three takes to be written and read again is a tenth of a start.
func drawWallpaper(widthPx, heightPx int) *image.Paletted {
	picture := image.NewPaletted(image.Rect(0, 0, widthPx, heightPx), wallpaperPalette())
	last := float64(len(picture.Palette) - 1)
	for y := range heightPx {
		row := picture.Pix[y*picture.Stride:][:widthPx]
		at := float64(y) / float64(max(1, heightPx-1)) * last
		for x := range min(4, widthPx) {
			row[x] = uint8(math.Min(last, math.Floor(at+(dither[y%4][x]+0.5)/16)))
		}
		for done := 4; done < len(row); done *= 2 {
			copy(row[done:], row[:done])
		}
	}
	return picture
}

func wallpaperPalette() color.Palette {
	palette := make(color.Palette, 256)
	for i := range palette {
		r, g, b := wallpaperColour(float64(i) / float64(len(palette)-1))
		palette[i] = color.RGBA{R: nearest(r), G: nearest(g), B: nearest(b), A: 255}
	}
	return palette
}

func nearest(value float64) uint8 { return uint8(math.Round(value)) }

func wallpaperColour(at float64) (r, g, b float64) {
	last := wallpaperStops[0]
	for _, stop := range wallpaperStops[1:] {
		if at <= stop.at {
			t := (at - last.at) / (stop.at - last.at)
			return last.r + t*(stop.r-last.r), last.g + t*(stop.g-last.g), last.b + t*(stop.b-last.b)
		}
		last = stop
	}
	return last.r, last.g, last.b
}
