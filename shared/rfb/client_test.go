// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeServer is the other end of a client's connection: the handshake is done, and
// serve plays the rest.
func fakeServer(t *testing.T, size Size, options Options, serve func(conn net.Conn, client *MessageReader)) *Client {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		if _, err := Welcome(far, ServerInit{Size: size, Format: RGBX, Name: "fake"}); err != nil {
			return
		}
		client := NewMessageReader(far)
		for _, want := range []uint8{TypeSetPixelFormat, TypeSetEncodings} {
			if m, err := client.Next(); err != nil || m.Type() != want {
				t.Errorf("client began with %v, %v; want type %d", m, err, want)
				return
			}
		}
		serve(far, client)
	}()
	c, err := Connect(t.Context(), near, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); <-done })
	return c
}

// update begins an update of so many rectangles.
func update(rects int) []byte {
	return binary.BigEndian.AppendUint16([]byte{TypeFramebufferUpdate, 0}, uint16(rects))
}

func rectHead(b []byte, x, y, width, height int, e Encoding) []byte {
	for _, n := range [4]int{x, y, width, height} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(e))
}

// rawRect is a rectangle of one colour.
func rawRect(b []byte, x, y, width, height int, c color.RGBA) []byte {
	return append(rectHead(b, x, y, width, height, Raw), bytes.Repeat([]byte{c.R, c.G, c.B, 0}, width*height)...)
}

var blue = color.RGBA{0x22, 0x55, 0xaa, 0xff}

func allOf(t *testing.T, img *image.RGBA, want color.RGBA) {
	t.Helper()
	for y := img.Rect.Min.Y; y < img.Rect.Max.Y; y++ {
		for x := img.Rect.Min.X; x < img.Rect.Max.X; x++ {
			if got := img.RGBAAt(x, y); got != want {
				t.Fatalf("pixel %d,%d is %v, want %v", x, y, got, want)
			}
		}
	}
}

// expectRequest reads the client's next message as an update request.
func expectRequest(t *testing.T, client *MessageReader, want image.Rectangle) bool {
	m, err := client.Next()
	if err != nil {
		t.Errorf("client's request: %v", err)
		return false
	}
	if r, ok := m.UpdateRequest(); !ok || r.Incremental || r.Area != want {
		t.Errorf("client sent %x, want a full request of %v", []byte(m), want)
		return false
	}
	return true
}

// RFB-16: an update of only a size, then half a picture, then the rest: the
// picture is whole, and the connection is not used for another one.
func TestRFB16WholePicture(t *testing.T) {
	c := fakeServer(t, Size{64, 48}, Options{}, func(conn net.Conn, client *MessageReader) {
		if !expectRequest(t, client, image.Rect(0, 0, 64, 48)) {
			return
		}
		conn.Write(rectHead(update(1), 0, 0, 80, 60, DesktopSize))
		if !expectRequest(t, client, image.Rect(0, 0, 80, 60)) {
			return
		}
		half := rawRect(update(2), 0, 0, 80, 20, blue)
		conn.Write(rawRect(half, 0, 20, 79, 10, blue)) // the last column of ten rows is missing too
		if !expectRequest(t, client, image.Rect(0, 20, 80, 60)) {
			return
		}
		rest := rawRect(update(2), 79, 20, 1, 10, blue)
		conn.Write(rawRect(rest, 0, 30, 80, 30, blue))
	})
	img, err := c.Screenshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if img.Rect != image.Rect(0, 0, 80, 60) || c.Size() != (Size{80, 60}) {
		t.Fatalf("picture is %v of %v", img.Rect, c.Size())
	}
	allOf(t, img, blue)
	if _, err := c.Screenshot(t.Context()); !errors.Is(err, ErrStale) {
		t.Errorf("a second picture after extra requests: %v", err)
	}
}

// RFB-16: a server that never draws everything is an error, not a black picture.
func TestRFB16Incomplete(t *testing.T) {
	c := fakeServer(t, Size{64, 48}, Options{}, func(conn net.Conn, client *MessageReader) {
		for {
			if _, err := client.Next(); err != nil {
				return
			}
			conn.Write(rawRect(update(1), 0, 0, 64, 47, blue))
		}
	})
	if img, err := c.Screenshot(t.Context()); !errors.Is(err, ErrIncomplete) {
		t.Fatalf("picture %v, error %v", img, err)
	}
	if _, err := c.Screenshot(t.Context()); err == nil || !strings.Contains(err.Error(), "unusable") {
		t.Errorf("after an error: %v", err)
	}
}

func TestScreenshotTwice(t *testing.T) {
	colours := []color.RGBA{blue, {1, 2, 3, 0xff}}
	c := fakeServer(t, Size{8, 8}, Options{}, func(conn net.Conn, client *MessageReader) {
		for _, colour := range colours {
			if !expectRequest(t, client, image.Rect(0, 0, 8, 8)) {
				return
			}
			conn.Write([]byte{TypeBell})
			conn.Write(append([]byte{TypeServerCutText, 0, 0, 0, 0, 0, 0, 2}, "hi"...))
			conn.Write(rawRect(update(1), 0, 0, 8, 8, colour))
		}
	})
	for _, colour := range colours {
		img, err := c.Screenshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		allOf(t, img, colour)
	}
}

// A part is asked for as such; what a server adds around it is left out.
func TestScreenshotOf(t *testing.T) {
	area := image.Rect(10, 20, 30, 40)
	c := fakeServer(t, Size{64, 48}, Options{}, func(conn net.Conn, client *MessageReader) {
		if !expectRequest(t, client, area) {
			return
		}
		// Too large on every side, in another colour where it is not wanted.
		around := rawRect(update(2), 0, 0, 64, 48, color.RGBA{9, 9, 9, 0xff})
		conn.Write(rawRect(around, 10, 20, 20, 20, blue))
	})
	img, err := c.ScreenshotOf(t.Context(), area)
	if err != nil || img.Rect != area {
		t.Fatalf("%v, %v", img, err)
	}
	allOf(t, img, blue)
	if _, err := c.ScreenshotOf(t.Context(), image.Rect(64, 48, 70, 50)); err == nil {
		t.Error("a picture of what is outside")
	}
}

func TestScreenshotEndsWithContext(t *testing.T) {
	asked := make(chan struct{})
	c := fakeServer(t, Size{8, 8}, Options{}, func(conn net.Conn, client *MessageReader) {
		client.Next()
		close(asked)
		client.Next()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := c.Screenshot(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v", err)
	}
	if _, err := c.Read(t.Context()); err == nil {
		t.Error("half an answer may be read on")
	}
}

// RFB-03: fences are answered where they were announced, in Xvnc's own bytes.
func TestRFB03FencesAnswered(t *testing.T) {
	answered := make(chan []byte, 1)
	c := fakeServer(t, Size{8, 8}, Options{Encodings: []Encoding{Raw, Fence}}, func(conn net.Conn, client *MessageReader) {
		conn.Write(unhex(t, greetings(t)["fence-ping"].Hex))
		m, _ := client.Next()
		answered <- bytes.Clone(m)
	})
	msg, err := c.Read(t.Context())
	if err != nil || msg.Type != TypeFence {
		t.Fatalf("%+v, %v", msg, err)
	}
	if got := <-answered; !bytes.Equal(got, unhex(t, "f8000000 00000001 01 01")) {
		t.Errorf("answer = %x", got)
	}
}

// What a real Xvnc first tells noVNC: extensions and a layout, no pixels.
func TestFirstReplyOfXvnc(t *testing.T) {
	announced := []Encoding{Raw, QEMUKey, LEDState, ExtendedDesktopSize, Fence, VMwareCursor}
	reply := unhex(t, greetings(t)["first-reply-to-novnc"].Hex)
	s := newServerReader(bytes.NewReader(reply), Size{800, 600}, MaxSize, announced)
	var kinds []uint8
	for {
		msg, err := s.next(void{})
		if err != nil {
			// The VMware cursor, which noVNC alone announces, has no decoder here.
			var p *ProtocolError
			if !errors.As(err, &p) || !strings.Contains(p.Reason, "decoder") || p.Offset != 27 {
				t.Fatalf("error = %v", err)
			}
			break
		}
		kinds = append(kinds, msg.Type)
	}
	if !slices.Equal(kinds, []uint8{TypeFence, TypeEndOfContinuous, TypeServerCutText}) {
		t.Fatalf("messages = %v", kinds)
	}
	// The same without it, as Xvnc answers what an input connection announces.
	layout := slices.Concat(update(2), rectHead(nil, 0, 0, 0, 0, QEMUKey), rectHead(nil, 1, 0, 1024, 768, ExtendedDesktopSize),
		[]byte{1, 0, 0, 0}, Screen{ID: 7, Area: image.Rect(0, 0, 1024, 768)}.append(nil))
	s = newServerReader(bytes.NewReader(layout), Size{800, 600}, MaxSize, announced)
	msg, err := s.next(void{})
	if err != nil || !slices.Equal(msg.Acknowledged, []Encoding{QEMUKey}) || msg.Resized == nil ||
		msg.Resized.Size != (Size{1024, 768}) || msg.Resized.Reason != 1 || len(msg.Resized.Screens) != 1 {
		t.Fatalf("%+v, %v", msg, err)
	}
	// A refused resize changes nothing.
	refused := slices.Concat(update(1), rectHead(nil, 1, 3, 640, 480, ExtendedDesktopSize), []byte{0, 0, 0, 0})
	s = newServerReader(bytes.NewReader(refused), Size{800, 600}, MaxSize, announced)
	if msg, err := s.next(void{}); err != nil || msg.Resized == nil || msg.Resized.Status != 3 || s.size != (Size{800, 600}) {
		t.Fatalf("%+v, %v, %v", msg, err, s.size)
	}
}

func TestCopyRect(t *testing.T) {
	pic := newCanvas(image.Rect(0, 0, 4, 4), true)
	rows := []byte{10, 20, 30, 40}
	data := update(2)
	data = rectHead(data, 0, 0, 4, 4, Raw)
	for _, row := range rows {
		data = append(data, bytes.Repeat([]byte{row, row, row, 0}, 4)...)
	}
	data = append(rectHead(data, 0, 1, 4, 3, CopyRect), 0, 0, 0, 0) // move everything one row down
	s := newServerReader(bytes.NewReader(data), Size{4, 4}, MaxSize, []Encoding{CopyRect})
	if _, err := s.next(pic); err != nil {
		t.Fatal(err)
	}
	for y, want := range []byte{10, 10, 20, 30} {
		if got := pic.img.RGBAAt(2, y).R; got != want {
			t.Errorf("row %d = %d, want %d", y, got, want)
		}
	}
}

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
