// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"image"
	"net"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/rfb"
)

// view runs `botscreen view --vnc` until the test ends and gives the path of its socket.
func view(t *testing.T, a *agent, profile string) (socket string) {
	t.Helper()
	var said struct{ Socket string }
	a.begin(t, &said, "view", "--vnc", "--json", profile)
	return said.Socket
}

func viewed(t *testing.T, a *agent) { watchAndTake(t, a, a.job(t, "viewed"), "viewed") }

// watchAndTake sees a job's desktop with a plain RFB client, whose click opens a menu once
// its user has taken the screen (rules L7, R6).
func watchAndTake(t *testing.T, a *agent, path, profile string) {
	a.must(t, "run", path)
	defer a.botscreen(t, "stop", "--force", profile)
	conn, err := net.Dial("unix", view(t, a, profile))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rfb.Connect(t.Context(), conn, rfb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if size := client.Size(); size.WidthPx != 800 || size.HeightPx != 600 {
		t.Errorf("a desktop of %s", size)
	}
	picture := func() *image.RGBA {
		t.Helper()
		img, err := client.ScreenshotOf(t.Context(), image.Rect(0, 100, 800, 600)) // below the panel with its clock
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	rightClick := func() {
		t.Helper()
		for _, buttons := range []uint16{0, 4, 0} {
			if err := client.Send(rfb.PointerEvent{Buttons: buttons, X: 400, Y: 300}.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := settled(picture)
	colours := map[[4]byte]bool{}
	for p := before.Pix; len(p) >= 4; p = p[4:] {
		colours[[4]byte(p)] = true
	}
	if len(colours) < 30 {
		t.Errorf("%d colours: no wallpaper", len(colours))
	}
	rightClick()
	if changed := difference(before, picture()); !changed.Empty() {
		t.Errorf("a click of somebody who only watches changed the picture at %v", changed)
	}
	if l := leaseBy(t, a, "take", profile); !l.You {
		t.Fatalf("the lease is %+v", l)
	}
	rightClick()
	a.eventually("a menu where the holder clicked", func() bool { return !bytes.Equal(picture().Pix, before.Pix) })
	if l := leaseBy(t, a, "release", profile); l.Holder != "agent" {
		t.Errorf("the lease is %+v", l)
	}
	a.must(t, "stop", profile)
	if _, err := client.Screenshot(t.Context()); err == nil {
		t.Error("the screen has ended, its view has not")
	}
	gone(t, a)
}

// settled is the first picture that stays what it is for a second: a desktop that is ready
// still draws a pointer or a shadow anew.
func settled(picture func() *image.RGBA) *image.RGBA {
	last, since := picture(), time.Now()
	for time.Since(since) < time.Second {
		if now := picture(); !bytes.Equal(now.Pix, last.Pix) {
			last, since = now, time.Now()
		}
	}
	return last
}

// difference is the smallest rectangle that holds all pixels in which two pictures of one
// size differ.
func difference(a, b *image.RGBA) (d image.Rectangle) {
	for y := a.Rect.Min.Y; y < a.Rect.Max.Y; y++ {
		for x := a.Rect.Min.X; x < a.Rect.Max.X; x++ {
			if a.RGBAAt(x, y) != b.RGBAAt(x, y) {
				d = d.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return d
}
