// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"testing"
)

func noise(width, height int) *image.RGBA {
	random := rand.New(rand.NewPCG(1, 2))
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range img.Pix {
		img.Pix[i] = byte(random.Uint32())
		if i%4 == 3 {
			img.Pix[i] = 0xff
		}
	}
	return img
}

// mean is the exact area mean that Scale approximates.
func mean(img *image.RGBA, to Size, x, y, channel int) float64 {
	fx, fy := float64(img.Rect.Dx())/float64(to.WidthPx), float64(img.Rect.Dy())/float64(to.HeightPx)
	part := func(i int, lo, hi float64) float64 {
		return max(0, min(hi, float64(i+1))-max(lo, float64(i)))
	}
	var sum float64
	for sy := int(float64(y) * fy); sy < img.Rect.Dy() && float64(sy) < float64(y+1)*fy; sy++ {
		for sx := int(float64(x) * fx); sx < img.Rect.Dx() && float64(sx) < float64(x+1)*fx; sx++ {
			weight := part(sx, float64(x)*fx, float64(x+1)*fx) * part(sy, float64(y)*fy, float64(y+1)*fy)
			sum += weight * float64(img.Pix[img.PixOffset(img.Rect.Min.X+sx, img.Rect.Min.Y+sy)+channel])
		}
	}
	return sum / (fx * fy)
}

func TestScaleIsTheAreaMean(t *testing.T) {
	for _, tc := range []struct{ from, to Size }{
		{Size{30, 20}, Size{20, 13}}, {Size{64, 64}, Size{32, 32}}, {Size{17, 5}, Size{16, 5}},
		{Size{100, 7}, Size{1, 1}}, {Size{1440, 9}, Size{7, 2}}, {Size{9, 9}, Size{9, 4}},
	} {
		img := noise(tc.from.WidthPx, tc.from.HeightPx)
		got := Scale(img, tc.to)
		if sizeOf(got) != tc.to {
			t.Fatalf("%v: size %v", tc, sizeOf(got))
		}
		for y := range tc.to.HeightPx {
			for x := range tc.to.WidthPx {
				p := got.Pix[got.PixOffset(x, y):]
				for channel := range 3 {
					if want := mean(img, tc.to, x, y, channel); math.Abs(float64(p[channel])-want) > 1 {
						t.Fatalf("%v: %d,%d channel %d = %d, want %.2f", tc, x, y, channel, p[channel], want)
					}
				}
				if p[3] != 0xff {
					t.Fatalf("%v: not opaque", tc)
				}
			}
		}
	}
}

func TestScaleKeepsWhite(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 1447, 901))
	for i := range img.Pix {
		img.Pix[i] = 0xff
	}
	allOf(t, Scale(img, Size{963, 600}), color.RGBA{255, 255, 255, 255})
}

// Only a part of a larger picture is scaled, and none is made larger.
func TestScaleOfCrop(t *testing.T) {
	img := noise(60, 60)
	part := Crop(img, image.Rect(10, 10, 40, 40))
	whole := image.NewRGBA(image.Rect(0, 0, 30, 30))
	for y := range 30 {
		copy(whole.Pix[y*whole.Stride:][:120], part.Pix[y*part.Stride:])
	}
	if !bytes.Equal(Scale(part, Size{11, 12}).Pix, Scale(whole, Size{11, 12}).Pix) {
		t.Error("a crop scales differently from the same pixels alone")
	}
	if Hash(part) != Hash(whole) || Hash(part) == Hash(img) {
		t.Error("equal pictures have equal hashes, others have not")
	}
	for _, size := range []Size{{60, 60}, {61, 10}, {0, 0}, {10, 0}} {
		if got := Scale(img, size); got != img {
			t.Errorf("scale to %v gives %v", size, got.Rect)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tc := range []struct{ size, want Size }{
		{Size{1440, 900}, Size{960, 600}}, {Size{1920, 1080}, Size{960, 540}}, {Size{640, 480}, Size{640, 480}},
		{Size{600, 1200}, Size{300, 600}}, {Size{7680, 1}, Size{960, 1}},
	} {
		if got := Fit(tc.size, thumbnailSize); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.size, got, tc.want)
		}
	}
}

// R11: a thumbnail is a JPEG of at most 960x600.
func TestR11Thumbnail(t *testing.T) {
	data, err := Encode(Thumbnail(noise(1440, 900)), JPEG, ThumbnailQuality)
	if err != nil {
		t.Fatal(err)
	}
	config, err := jpeg.DecodeConfig(bytes.NewReader(data))
	if err != nil || config.Width != 960 || config.Height != 600 {
		t.Fatalf("%+v, %v", config, err)
	}
	// The quality stands in the tables: 72 gives this first quantiser.
	if i := bytes.Index(data, []byte{0xff, 0xdb}); data[i+5] != 9 {
		t.Errorf("first quantiser = %d, want 9", data[i+5])
	}
}

func TestEncode(t *testing.T) {
	img := noise(33, 21)
	data, err := Encode(img, PNG, 0)
	if err != nil {
		t.Fatal(err)
	}
	back, err := png.Decode(bytes.NewReader(data))
	if err != nil || back.Bounds() != img.Rect {
		t.Fatal(back.Bounds(), err)
	}
	for y := range 21 {
		for x := range 33 {
			if color.RGBAModel.Convert(back.At(x, y)) != img.At(x, y) {
				t.Fatalf("pixel %d,%d changed", x, y)
			}
		}
	}
	if _, err := Encode(img, "webp", 0); err == nil {
		t.Error("webp is written")
	}
}

func BenchmarkScale(b *testing.B) {
	img := noise(1440, 900)
	for b.Loop() {
		Scale(img, Size{960, 600})
	}
}

func BenchmarkHash(b *testing.B) {
	img := noise(1440, 900)
	for b.Loop() {
		Hash(img)
	}
}
