// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/rfb"
)

// canvas is an RFB server whose 8x6 pixels have one colour, but for the lowest row.
type canvas struct {
	conn net.Conn

	mu      sync.Mutex // guards all below
	colour  byte
	row     byte             // the lowest row's
	changed image.Rectangle  // since the last update
	waiting *image.Rectangle // an incremental request that waits for a change of its area
	asked   int              // full pictures
}

func newCanvas(t *testing.T) (*canvas, *rfb.Client) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &canvas{conn: theirs}
	go c.serve()
	client, err := rfb.Connect(t.Context(), ours, rfb.Options{})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return c, client
}

func (c *canvas) serve() {
	defer c.conn.Close()
	if _, err := rfb.Welcome(c.conn, rfb.ServerInit{Size: rfb.Size{WidthPx: 8, HeightPx: 6}, Format: rfb.RGBX, Name: "c"}); err != nil {
		return
	}
	for r := rfb.NewMessageReader(c.conn); ; {
		m, err := r.Next()
		if err != nil {
			return
		}
		if m.Type() != rfb.TypeFramebufferUpdateRequest {
			continue
		}
		area := image.Rect(0, 0, int(binary.BigEndian.Uint16(m[6:])), int(binary.BigEndian.Uint16(m[8:]))).
			Add(image.Pt(int(binary.BigEndian.Uint16(m[2:])), int(binary.BigEndian.Uint16(m[4:]))))
		c.mu.Lock()
		if m[1] == 0 || area.Overlaps(c.changed) {
			c.update(area)
			if m[1] == 0 {
				c.asked++
			}
		} else {
			c.waiting = &area
		}
		c.mu.Unlock()
	}
}

// update needs mu.
func (c *canvas) update(area image.Rectangle) {
	b := []byte{rfb.TypeFramebufferUpdate, 0, 0, 1}
	for _, n := range []int{area.Min.X, area.Min.Y, area.Dx(), area.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	b = append(b, 0, 0, 0, 0)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		colour := c.colour
		if y == 5 {
			colour = c.row
		}
		b = append(b, bytes.Repeat([]byte{colour, colour, colour, 0}, area.Dx())...)
	}
	c.changed = image.Rectangle{}
	_, _ = c.conn.Write(b)
}

// paint changes the upper rows, or the lowest one.
func (c *canvas) paint(colour byte, area image.Rectangle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if area.Min.Y == 5 {
		c.row = colour
	} else {
		c.colour = colour
	}
	c.changed = c.changed.Union(area)
	if c.waiting != nil && c.waiting.Overlaps(area) {
		c.update(*c.waiting)
		c.waiting = nil
	}
}

var upper, lowest = image.Rect(0, 0, 8, 5), image.Rect(0, 5, 8, 6)

// A screenshot waits for the screen to change, or to settle, and says when it did not.
func TestAwaitScreen(t *testing.T) {
	type paint struct {
		after  time.Duration
		colour byte
		area   image.Rectangle
	}
	flicker := []paint{{200 * time.Millisecond, 1, upper}, {400 * time.Millisecond, 2, upper}, {800 * time.Millisecond, 3, upper}}
	for name, tc := range map[string]struct {
		req      control.ScreenshotRequest
		seen     bool // the caller has the picture as it is at first
		paints   []paint
		late     bool
		took     time.Duration // to 200 ms
		pictures int           // at most
	}{
		"changed before":            {control.ScreenshotRequest{Until: control.Change}, false, nil, false, 0, 1},
		"changes":                   {control.ScreenshotRequest{Until: control.Change}, true, flicker, false, 200 * time.Millisecond, 2},
		"does not change":           {control.ScreenshotRequest{Until: control.Change}, true, nil, true, 5 * time.Second, 1},
		"changes elsewhere":         {control.ScreenshotRequest{Until: control.Change, Rect: upper}, true, []paint{{time.Second, 1, lowest}}, true, 5 * time.Second, 1},
		"settled":                   {control.ScreenshotRequest{Until: control.Settle}, false, nil, false, quietTime, 1},
		"settles":                   {control.ScreenshotRequest{Until: control.Settle}, true, flicker, false, 800*time.Millisecond + quietTime, 4},
		"settled but for elsewhere": {control.ScreenshotRequest{Until: control.Settle, Rect: upper}, false, []paint{{300 * time.Millisecond, 1, lowest}}, false, quietTime, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := newCanvas(t)
				tc.req.Within = 5 * time.Second
				first, err := lookAt(t.Context(), client, tc.req)
				must(t, err)
				tc.req.Unless = "another"
				if tc.seen {
					tc.req.Unless = first.hash
				}
				begin := time.Now()
				for _, p := range tc.paints {
					time.AfterFunc(p.after, func() { c.paint(p.colour, p.area) })
				}
				shown, late, err := awaitScreen(t.Context(), client, tc.req)
				must(t, err)
				if took := time.Since(begin); late != tc.late || took < tc.took || took > tc.took+200*time.Millisecond {
					t.Errorf("late: %v after %s", late, took)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if shown.img.Pix[0] != c.colour || c.asked-1 > tc.pictures {
					t.Errorf("colour %d of %d in %d pictures", shown.img.Pix[0], c.colour, c.asked-1)
				}
			})
		})
	}
}

// A screen that moves all the time is late, and costs ten pictures a second.
func TestAwaitMovingScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := newCanvas(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for colour := byte(0); ctx.Err() == nil; colour++ {
				c.paint(colour, upper)
				_ = pauseUntil(ctx, time.Now().Add(5*time.Millisecond))
			}
		}()
		_, late, err := awaitScreen(ctx, client, control.ScreenshotRequest{Until: control.Settle, Within: 3 * time.Second})
		must(t, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		if !late || c.asked > 35 {
			t.Errorf("late: %v, %d pictures", late, c.asked)
		}
	})
}

// L6, X34: whoever waits for the screen of the agent hears at once when a person takes
// it, and holds up nobody who wants a picture now.
func TestL6AwaitEndsAtATakeover(t *testing.T) {
	r, _ := newViewable(t)
	shot, err := r.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	must(t, err)
	if shot.Screen.WidthPx != 8 || shot.Screen.HeightPx != 6 {
		t.Errorf("a screen of %s", shot.Screen)
	}
	same, err := r.client.Screenshot(t.Context(), control.ScreenshotRequest{Unless: shot.Hash})
	if err != nil || len(same.Data) > 0 || same.Hash != shot.Hash || same.Epoch != shot.Epoch {
		t.Errorf("the same picture: %d bytes, %+v", len(same.Data), err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.client.Screenshot(context.Background(), control.ScreenshotRequest{Until: control.Change, Unless: shot.Hash, Within: time.Minute})
		ended <- err
	}()
	r.await("a second connection to the screen", func() bool { return len(r.passed) > 0 })
	_, err = r.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	must(t, err)
	r.take("ann")
	asRefusal(t, <-ended, control.HumanHasControl)
}
