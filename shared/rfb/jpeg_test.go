// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
)

// A picture written in halves shows what one written whole does, to the last bit, also
// where its size is no multiple of a block's, and where it is a part of another.
func TestJPEGInHalves(t *testing.T) {
	for _, size := range []Size{{1, 1}, {40, 16}, {40, 17}, {16, 32}, {33, 47}, {960, 600}, {70, 97}, {8, 4000}} {
		whole := noise(size.WidthPx+3, size.HeightPx+5)
		img := Crop(whole, image.Rect(3, 5, 3+size.WidthPx, 5+size.HeightPx))
		for _, quality := range []int{1, ThumbnailQuality, 100} {
			data, err := Encode(img, JPEG, quality)
			if err != nil {
				t.Fatalf("%v: %v", size, err)
			}
			var single bytes.Buffer
			if err := jpeg.Encode(&single, img, &jpeg.Options{Quality: quality}); err != nil {
				t.Fatal(err)
			}
			got, want := decodeJPEG(t, data), decodeJPEG(t, single.Bytes())
			if got.Rect != want.Rect || !bytes.Equal(got.Y, want.Y) || !bytes.Equal(got.Cb, want.Cb) || !bytes.Equal(got.Cr, want.Cr) {
				t.Errorf("%v at %d: the halves show %v, not what the whole does, %v", size, quality, got.Rect, want.Rect)
			}
			if halves := bytes.Contains(data, []byte{0xff, markerDRI, 0, 4}); halves != (size.HeightPx > blockPx) {
				t.Errorf("%v: in halves: %t", size, halves)
			}
		}
	}
}

func decodeJPEG(t *testing.T, data []byte) *image.YCbCr {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img.(*image.YCbCr)
}

// What is no picture of the encoder is refused and not joined into one that cannot be read.
func TestJoinJPEGRefuses(t *testing.T) {
	good, err := encodePart(noise(16, 16), ThumbnailQuality)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(good) {
		if out, err := joinJPEG(good[:cut], good, 32, 1); err == nil {
			t.Fatalf("%d bytes of a half gave %d", cut, len(out))
		}
		if out, err := joinJPEG(good, good[:cut], 32, 1); err == nil {
			t.Fatalf("%d bytes of a lower half gave %d", cut, len(out))
		}
	}
}

func BenchmarkJPEG(b *testing.B) {
	img := noise(960, 600)
	b.Run("halves", func(b *testing.B) {
		for b.Loop() {
			if _, err := Encode(img, JPEG, ThumbnailQuality); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if _, err := encodePart(img, ThumbnailQuality); err != nil {
				b.Fatal(err)
			}
		}
	})
}
