// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"net"
	"slices"
	"strings"
	"testing"
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

// What Xvnc tells an input connection: extensions and a layout, no pixels.
func TestFirstReplyOfXvnc(t *testing.T) {
	announced := []Encoding{Raw, QEMUKey, LEDState, ExtendedDesktopSize, Fence}
	layout := slices.Concat(update(2), rectHead(nil, 0, 0, 0, 0, QEMUKey), rectHead(nil, 1, 0, 1024, 768, ExtendedDesktopSize),
		[]byte{1, 0, 0, 0}, Screen{ID: 7, Area: image.Rect(0, 0, 1024, 768)}.append(nil))
	s := newServerReader(bytes.NewReader(layout), Size{800, 600}, MaxSize, announced)
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
