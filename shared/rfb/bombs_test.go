// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"errors"
	"image"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// X31: nothing that a hostile server declares is believed. Each bomb ends in an
// error, quickly and without memory.
func TestX31Bombs(t *testing.T) {
	many := rectHead(update(0xffff), 0, 0, 1, 1, Raw)
	grow := slices.Concat(update(2), rectHead(nil, 0, 0, 7680, 4320, DesktopSize), rectHead(nil, 0, 0, 65535, 65535, DesktopSize))
	bombs := map[string][]byte{
		"picture larger than the screen": rectHead(update(1), 0, 0, 65535, 65535, Raw),
		"rectangle past the right":       rectHead(update(1), 1, 0, 640, 1, Raw),
		"rectangle past the bottom":      rectHead(update(1), 0, 479, 1, 2, Raw),
		"copy from outside":              append(rectHead(update(1), 0, 0, 2, 2, CopyRect), 0xff, 0xff, 0, 0),
		"desktop 65535x65535":            rectHead(update(1), 0, 0, 65535, 65535, DesktopSize),
		"desktop growing":                grow,
		"desktop of no pixels":           rectHead(update(1), 0, 0, 0, 0, DesktopSize),
		"extended 65535x65535":           append(rectHead(update(1), 0, 0, 65535, 65535, ExtendedDesktopSize), 0, 0, 0, 0),
		"cursor 65535x65535":             rectHead(update(1), 0, 0, 65535, 65535, Cursor),
		"name of 4 GiB":                  append(rectHead(update(1), 0, 0, 0, 0, DesktopName), 0xff, 0xff, 0xff, 0xff),
		"ZRLE not asked for":             append(rectHead(update(1), 0, 0, 64, 64, ZRLE), 0x7f, 0xff, 0xff, 0xff),
		"Tight not asked for":            rectHead(update(1), 0, 0, 64, 64, Tight),
		"cut text of 2 GiB":              {TypeServerCutText, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff},
		"cut text of -2 GiB":             {TypeServerCutText, 0, 0, 0, 0x80, 0, 0, 0},
		"fence of 255":                   {TypeFence, 0, 0, 0, 0, 0, 0, 0, 255},
		"unknown message":                {99},
		"65535 rectangles, one drawn":    many,
	}
	announced := []Encoding{CopyRect, DesktopSize, ExtendedDesktopSize, Cursor, DesktopName, LastRect}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			checkCheap(t, func() {
				s := newServerReader(bytes.NewReader(bomb), Size{640, 480}, Size{3840, 2160}, announced)
				if _, err := s.next(newCanvas(image.Rect(0, 0, 640, 480), true)); err == nil {
					t.Error("accepted")
				}
			})
		})
	}
	for name, init := range map[string][]byte{
		"init 65535x65535":     ServerInit{Size: Size{65535, 65535}, Format: RGBX}.Append(nil),
		"init over the job's":  ServerInit{Size: Size{3841, 2160}, Format: RGBX}.Append(nil),
		"init name of 4 GiB":   append(ServerInit{Size: Size{640, 480}, Format: RGBX}.Append(nil)[:20], 0xff, 0xff, 0xff, 0xff),
		"init name of 5000":    ServerInit{Size: Size{640, 480}, Format: RGBX, Name: strings.Repeat("n", 5000)}.Append(nil),
		"init, then the end":   ServerInit{Size: Size{640, 480}, Format: RGBX}.Append(nil)[:10],
		"init name cut short":  append(ServerInit{Size: Size{640, 480}, Format: RGBX}.Append(nil)[:20], 0, 0, 0x0f, 0xff),
		"init without a name ": ServerInit{Size: Size{640, 480}, Format: RGBX}.Append(nil)[:20],
	} {
		t.Run(name, func(t *testing.T) {
			checkCheap(t, func() {
				greeting := append([]byte("RFB 003.008\n\x01\x01\x00\x00\x00\x00"), init...)
				if _, got, err := Join(newScript(greeting), Size{3840, 2160}); err == nil {
					t.Errorf("accepted %+v", got)
				}
			})
		})
	}
}

// checkCheap runs work and asks for less than a second and 16 MiB.
func checkCheap(t *testing.T, work func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	work()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 || took > time.Second {
		t.Errorf("took %v and %d bytes", took, grown)
	}
}

// X31: a server that repaints for ever is cut off, and one that says a desktop is
// large is not believed before it paints.
func TestX31Endless(t *testing.T) {
	one := rawRect(nil, 0, 0, 64, 48, blue)
	flood := append(update(0xffff), bytes.Repeat(one, 100)...)
	s := newServerReader(bytes.NewReader(flood), Size{64, 48}, MaxSize, nil)
	if _, err := s.next(newCanvas(image.Rect(0, 0, 64, 48), true)); !errors.Is(err, ErrIncomplete) {
		t.Errorf("100 pictures in one update: %v", err)
	}
	if at := s.offset; at > int64(18*len(one)) {
		t.Errorf("read %d bytes of the flood", at)
	}
	checkCheap(t, func() {
		resizes := update(0xffff)
		for i := range 10000 {
			resizes = rectHead(resizes, 0, 0, 1024-i%2, 768, DesktopSize)
			resizes = rawRect(resizes, 0, 0, 1, 1, blue)
		}
		s := newServerReader(bytes.NewReader(resizes), Size{640, 480}, MaxSize, []Encoding{DesktopSize})
		if _, err := s.next(newCanvas(image.Rect(0, 0, 640, 480), true)); !errors.Is(err, ErrIncomplete) {
			t.Errorf("10000 sizes in one update: %v", err)
		}
	})
	checkCheap(t, func() {
		pic := newCanvas(image.Rect(0, 0, 640, 480), true)
		s := newServerReader(bytes.NewReader(rectHead(update(1), 0, 0, 7680, 4320, DesktopSize)), Size{640, 480}, MaxSize, []Encoding{DesktopSize})
		if _, err := s.next(pic); err != nil || pic.wanted.Dx() != 7680 {
			t.Errorf("%v, %v", pic.wanted, err)
		}
	})
}

// FuzzServer: whatever a server says, reading it ends, stays in the picture and
// within bounds, and does not depend on how it arrives.
func FuzzServer(f *testing.F) {
	f.Add(rawRect(update(1), 0, 0, 8, 8, blue), byte(1))
	f.Add(rawRect(rectHead(update(2), 0, 0, 4, 4, DesktopSize), 0, 0, 4, 4, blue), byte(7))
	f.Add(append(rectHead(update(1), 0, 0, 4, 4, CopyRect), 0, 1, 0, 1), byte(2))
	f.Add(append(rectHead(update(1), 0, 0, 8, 8, ExtendedDesktopSize), 0, 0, 0, 0), byte(2))
	f.Add(rectHead(update(0xffff), 0, 0, 0, 0, LastRect), byte(2))
	for _, g := range greetings(f) {
		f.Add(unhex(f, g.Hex), byte(5))
	}
	most := Size{32, 32}
	announced := []Encoding{CopyRect, DesktopSize, ExtendedDesktopSize, Cursor, DesktopName, LastRect, QEMUKey, LEDState, Fence}
	f.Fuzz(func(t *testing.T, data []byte, step byte) {
		read := func(r io.Reader) (*canvas, int64, string) {
			s := newServerReader(r, Size{16, 16}, most, announced)
			pic := newCanvas(image.Rect(2, 2, 14, 14), false)
			for {
				if _, err := s.next(pic); err != nil {
					return pic, s.at, err.Error()
				}
				if !s.size.Within(most) {
					t.Fatalf("desktop is %v", s.size)
				}
			}
		}
		a, at, why := read(bytes.NewReader(data))
		b, bt, because := read(&stepper{data, int(step) + 1})
		if at != bt || why != because || a.missing != b.missing || a.gap() != b.gap() {
			t.Fatalf("whole: %d %s; cut: %d %s", at, why, bt, because)
		}
		if !a.gap().In(a.wanted) || a.missing < 0 || (a.missing == 0) != a.gap().Empty() {
			t.Fatalf("gap %v of %v, %d missing", a.gap(), a.wanted, a.missing)
		}
	})
}
