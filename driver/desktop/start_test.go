// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"image"
	"image/png"
	"testing"
)

// pointInWallpaper is neither below the panel nor a window.
var pointInWallpaper = image.Pt(512, 320)

// S6: when Start returns, panel and wallpaper are on the screen.
func TestS6ReadyMeansPainted(t *testing.T) {
	r := newRig(t)
	r.start()
	for _, kind := range []EventKind{EventXServerReady, EventWMReady, EventPainted} {
		r.event(kind)
	}
	picture := r.screenshot()
	want := drawWallpaper(r.options.WidthPx, r.options.HeightPx)
	for _, at := range []image.Point{{100, 200}, {512, 320}, {1000, 630}} {
		if got, want := rgb(picture, at), rgb(want, at); got != want {
			t.Errorf("wallpaper at %v is %v, want %v", at, got, want)
		}
	}
	panel := rgb(picture, image.Pt(500, 10))
	if panel == rgb(want, image.Pt(500, 10)) || panel == ([3]uint8{}) {
		t.Errorf("no panel at the top: %v", panel)
	}
	if n := r.order(order{Op: "dial"}); n.Err != "" || n.Greets != 100 {
		t.Errorf("RFB connections greeted: %d of 100, %s", n.Greets, n.Err)
	}
	r.stop()
}

func rgb(picture image.Image, at image.Point) [3]uint8 {
	r, g, b, _ := picture.At(at.X, at.Y).RGBA()
	return [3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}
}

func (r *rig) screenshot() image.Image {
	r.t.Helper()
	out, err := r.command("import", "-window", "root", "png:-").Output()
	must(r.t, err)
	picture, err := png.Decode(bytes.NewReader(out))
	must(r.t, err)
	return picture
}
