// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The settings daemon comes after the first paint and changes nothing in the
// picture: GTK's own settings file says the same.
func TestLateSettingsDaemonChangesNothing(t *testing.T) {
	r := newRig(t)
	r.start()
	before := r.screenshot()
	r.awaitOwner("_XSETTINGS_S0")
	r.order(order{Op: "windows"}) // a round trip behind what the panel did about it
	after := r.screenshot()
	keepPicture(t, "lean.png", after)
	for y := range r.options.HeightPx {
		for x := range r.options.WidthPx - 120 { // the clock may have moved on
			if p := image.Pt(x, y); rgb(before, p) != rgb(after, p) {
				t.Fatalf("pixel %v was %v and is %v", p, rgb(before, p), rgb(after, p))
			}
		}
	}
}

// awaitOwner waits until a selection has an owner.
func (r *rig) awaitOwner(selection string) {
	r.t.Helper()
	x := r.x()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		owned, err := x.selectionOwned(selection)
		must(r.t, err)
		if owned {
			return
		}
	}
	r.t.Fatalf("nobody owns %s", selection)
}

// The full look has its dock beside the panel, and icons on the background.
func TestFullLook(t *testing.T) {
	r := newRig(t)
	r.options.Look, r.options.DPI = LookFull, 120
	r.start()
	r.awaitDock()
	keepPicture(t, "full.png", r.screenshot())
}

// awaitDock waits until the full look's two panels are there, of which the narrow one may
// come after the desktop counts as ready.
func (r *rig) awaitDock() {
	r.t.Helper()
	wide, narrow := 0, 0
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && (wide != 1 || narrow != 1); {
		wide, narrow = 0, 0
		for _, w := range r.order(order{Op: "windows"}).Windows {
			switch {
			case w.Type == "dock" && w.WidthPx == r.options.WidthPx:
				wide++
			case w.Type == "dock" && w.Y > r.options.HeightPx/2:
				narrow++
			}
		}
	}
	if wide != 1 || narrow != 1 {
		r.t.Fatalf("%d panels and %d docks, want one of each", wide, narrow)
	}
}

// keepPicture stores a picture for the eyes of a person who asks for it.
func keepPicture(t *testing.T, name string, picture image.Image) {
	dir := os.Getenv("BOTSCREEN_TEST_PICTURES")
	if dir == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, name))
	must(t, err)
	must(t, png.Encode(f, picture))
	must(t, f.Close())
}
