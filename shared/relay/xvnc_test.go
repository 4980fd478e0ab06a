// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// xvnc is a real server on a Unix socket.
type xvnc struct{ socket, display string }

// startXvnc runs Xvnc for one test; where it is not installed the test is skipped,
// except in CI.
func startXvnc(t testing.TB) xvnc {
	t.Helper()
	program, err := exec.LookPath("Xvnc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("Xvnc is not installed")
	}
	for range 10 { // a taken number makes Xvnc exit
		server := xvnc{filepath.Join(t.TempDir(), "rfb"), fmt.Sprintf(":%d", 5000+rand.IntN(4000))}
		if server.run(t, program) {
			return server
		}
	}
	t.Fatal("no display number is free")
	return xvnc{}
}

func (x xvnc) run(t testing.TB, program string) bool {
	ready, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command(program, x.display, "-geometry", "1440x900", "-depth", "24", "-rfbport", "-1",
		"-rfbunixpath", x.socket, "-rfbunixmode", "0600", "-SecurityTypes", "None", "-AlwaysShared", "-UseBlacklist=0",
		"-SendCutText=0", "-AcceptCutText=0", "-nolisten", "tcp", "-extension", "GLX", "-displayfd", "3")
	cmd.ExtraFiles = []*os.File{tell}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err = cmd.Start()
	tell.Close()
	if err != nil {
		t.Fatal(err)
	}
	ready.SetReadDeadline(time.Now().Add(15 * time.Second))
	if said, _ := io.ReadAll(ready); !strings.HasSuffix(string(said), "\n") {
		cmd.Process.Kill()
		cmd.Wait()
		t.Logf("Xvnc %s: %s", x.display, log.String())
		return false
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return true
}

func (x xvnc) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", x.socket)
}

// client is an X client with the keyboard.
type client struct {
	*xgb.Conn
	root, window xproto.Window
	setup        *xproto.SetupInfo
}

func (x xvnc) client(t testing.TB) *client {
	t.Helper()
	conn, err := xgb.NewConnDisplay(x.display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	setup := xproto.Setup(conn)
	c := &client{conn, setup.DefaultScreen(conn).Root, 0, setup}
	c.window, _ = xproto.NewWindowId(conn)
	screen := setup.DefaultScreen(conn)
	must(t, xproto.CreateWindowChecked(conn, screen.RootDepth, c.window, c.root, 0, 0, 1440, 900, 0, xproto.WindowClassInputOutput, screen.RootVisual,
		xproto.CwBackPixel|xproto.CwEventMask, []uint32{0x2255aa, xproto.EventMaskKeyPress | xproto.EventMaskKeyRelease | xproto.EventMaskButtonPress}).Check())
	must(t, xproto.MapWindowChecked(conn, c.window).Check())
	must(t, xproto.SetInputFocusChecked(conn, xproto.InputFocusParent, c.window, 0).Check())
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// down is which keys the server thinks are pressed, and the buttons.
func (c *client) down(t testing.TB) (keys []int, buttons uint16) {
	t.Helper()
	keymap, err := xproto.QueryKeymap(c.Conn).Reply()
	must(t, err)
	for i := range 256 {
		if keymap.Keys[i/8]>>(i%8)&1 != 0 {
			keys = append(keys, i)
		}
	}
	pointer, err := xproto.QueryPointer(c.Conn, c.root).Reply()
	must(t, err)
	return keys, pointer.Mask >> 8
}

// press waits for the next key press and names its keysym.
func (c *client) press(t testing.TB) uint32 {
	t.Helper()
	for {
		event, err := c.WaitForEvent()
		if err != nil || event == nil {
			t.Fatalf("%v %v", event, err)
		}
		key, ok := event.(xproto.KeyPressEvent)
		if !ok {
			continue
		}
		mapping, err2 := xproto.GetKeyboardMapping(c.Conn, key.Detail, 1).Reply()
		must(t, err2)
		if key.State&xproto.ModMaskLock != 0 {
			t.Errorf("Caps Lock is on at key %d", key.Detail)
		}
		level := 0
		if key.State&xproto.ModMaskShift != 0 {
			level = 1
		}
		return uint32(mapping.Keysyms[level])
	}
}

func realWorld(t testing.TB, server xvnc) *world {
	return newWorld(t, func(o *Options) { o.Dial = server.dial })
}

// done waits until the screen has handled all that was sent.
func (w *world) done(t testing.TB) {
	t.Helper()
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	err := w.gate.conn.settle(w.gate.writeInput)
	for n := 0; err == errSettle && n < 100; n++ { // the machine is busy
		err = w.gate.conn.settle(w.gate.writeInput)
	}
	must(t, err)
}

// arrive comes as a viewer of a real server.
func (w *world) arrive(t testing.TB, v lease.ViewerID, encodings ...rfb.Encoding) *rfb.Client {
	t.Helper()
	p := w.knock(v, ticket.Control)
	c, err := rfb.Connect(t.Context(), p.conn, rfb.Options{Encodings: append(encodings, rfb.Raw)})
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		if end := <-p.end; t.Failed() {
			t.Logf("viewer %s: %v", v, end)
		}
	})
	w.x.await(func() bool {
		return slices.ContainsFunc(w.Viewers(), func(a Attached) bool { return a.Viewer == v.Handle() })
	})
	if _, err := w.gate.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// seen waits until the X server shows something: each call asks it anew.
func seen(t testing.TB, what string, state func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !state(); {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// L7, LSE-09 on a real server: keys and a button held at a hand-back are up, in each
// form, with the stream still open; the agent's at a takeover too.
func TestL7OnXvnc(t *testing.T) {
	server := startXvnc(t)
	w, x := realWorld(t, server), server.client(t)
	c := w.arrive(t, "a")
	for _, held := range [][]byte{
		keyMessage(true, 0xffe3), qemuMessage(true, 0xffe3, 29), pointerMessage(1, 100, 100),
		slices.Concat(keyMessage(true, 0xffe1), qemuMessage(true, 'a', 30), pointerMessage(4, 7, 7)),
	} {
		w.take(t, "a")
		must(t, c.Send(held))
		seen(t, "pressed", func() bool { keys, buttons := x.down(t); return len(keys) > 0 || buttons != 0 })
		w.done(t)
		w.keeper.Release("a")
		w.done(t)
		if keys, buttons := x.down(t); len(keys) > 0 || buttons != 0 {
			t.Errorf("%x: still down: keys %v, buttons %x", held, keys, buttons)
		}
	}
	failed := make(chan error)
	go func() {
		failed <- w.Do(t.Context(), w.epoch(), action.List{action.Drag{Path: slices.Repeat([]action.Point{{X: 5, Y: 5}, {X: 50, Y: 50}}, 40), Modifiers: "ctrl"}})
	}()
	seen(t, "dragging", func() bool { keys, buttons := x.down(t); return len(keys) > 0 && buttons != 0 })
	w.take(t, "a")
	if err := <-failed; err == nil {
		t.Error("the drag went on")
	}
	w.done(t)
	if keys, buttons := x.down(t); len(keys) > 0 || buttons != 0 {
		t.Errorf("still down: keys %v, buttons %x", keys, buttons)
	}
}

// The agent's text and chords arrive as meant.
func TestTypingOnXvnc(t *testing.T) {
	server := startXvnc(t)
	w, x := realWorld(t, server), server.client(t)
	const text = "aB1!ß€漢😀é\n"
	if err := w.Do(t.Context(), w.epoch(), action.List{action.Click{Point: action.Point{X: 700, Y: 400}}, action.Type{Text: text}}); err != nil {
		t.Fatal(err)
	}
	want := []uint32{'a', 'B', '1', '!', 0xdf, 0x10020ac, 0x1006f22, 0x101f600, 0xe9, 0xff0d}
	var got []uint32
	for len(got) < len(want) {
		switch key := x.press(t); key {
		case 0xffe1, 0xffe2: // Shift is the server's own doing
		case 0x20ac: // the server has an older name for it
			got = append(got, 0x10020ac)
		default:
			got = append(got, key)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "ctrl+shift+t"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint32{0xffe3, 0xffe1, 'T'} {
		if got := x.press(t); got != want {
			t.Errorf("got %x, want %x", got, want)
		}
	}
	if keys, buttons := x.down(t); len(keys) > 0 || buttons != 0 {
		w.done(t)
		if keys, buttons = x.down(t); len(keys) > 0 || buttons != 0 {
			t.Errorf("still down: keys %v, buttons %x", keys, buttons)
		}
	}
}

// R14 on a real server: the holder gets a cursor of its own instead of one painted
// into its picture, also while a button is held, and the button stays down.
func TestR14OnXvnc(t *testing.T) {
	server := startXvnc(t)
	w, x := realWorld(t, server), server.client(t)
	c := w.arrive(t, "a", rfb.Cursor)
	w.take(t, "a")
	at := image.Rect(180, 180, 220, 220)
	for i, buttons := range []uint16{0, 1, 1} {
		must(t, c.Send(pointerMessage(buttons, 200, uint16(200+i))))
		seen(t, "moved", func() bool {
			p, err := xproto.QueryPointer(x.Conn, x.root).Reply()
			must(t, err)
			return p.RootX == 200 && p.RootY == int16(200+i) && p.Mask>>8&1 == buttons
		})
		w.done(t)
		img, err := c.ScreenshotOf(t.Context(), at)
		must(t, err)
		for y := at.Min.Y; y < at.Max.Y; y++ {
			for x := at.Min.X; x < at.Max.X; x++ {
				if r, g, b, _ := img.At(x, y).RGBA(); r>>8 != 0x22 || g>>8 != 0x55 || b>>8 != 0xaa {
					t.Fatalf("step %d: a pointer is painted at %d,%d", i, x, y)
				}
			}
		}
		if _, held := x.down(t); held != buttons {
			t.Errorf("step %d: buttons %x", i, held)
		}
	}
}

// R14: what was repeated for the old holder does not move the pointer after the change
// of hands.
func TestR14SettledBeforeTheNewEpoch(t *testing.T) {
	server := startXvnc(t)
	w, x := realWorld(t, server), server.client(t)
	c := w.arrive(t, "a", rfb.Cursor)
	for i := range 100 {
		w.take(t, "a")
		var moves []byte
		for n := range 20 {
			moves = append(moves, pointerMessage(0, uint16(n), uint16(i))...)
		}
		must(t, c.Send(moves))
		w.keeper.Release("a")
		if err := w.Do(t.Context(), w.epoch(), action.List{action.Move{Point: action.Point{X: 700, Y: 400}}}); err != nil {
			t.Fatal(err)
		}
		w.done(t)
		p, err := xproto.QueryPointer(x.Conn, x.root).Reply()
		must(t, err)
		if p.RootX != 700 || p.RootY != 400 {
			t.Fatalf("round %d: the pointer is at %d,%d", i, p.RootX, p.RootY)
		}
	}
}

// R5a, RFB-08, RFB-09, L17 on a real server: it survives a size from a viewer that did
// not announce it, takes one within the maximum, and the agent gets its own back.
func TestR5aOnXvnc(t *testing.T) {
	server := startXvnc(t)
	w, x := realWorld(t, server), server.client(t)
	w.gate.most = rfb.Size{WidthPx: 2000, HeightPx: 2000}
	size := func() string {
		g, err := xproto.GetGeometry(x.Conn, xproto.Drawable(x.root)).Reply()
		must(t, err)
		return fmt.Sprintf("%dx%d", g.Width, g.Height)
	}
	rude, polite := w.arrive(t, "a"), w.arrive(t, "b", rfb.ExtendedDesktopSize)
	resize := func(width, height int) []byte {
		return rfb.Resize{Size: rfb.Size{WidthPx: width, HeightPx: height}, Screens: []rfb.Screen{{Area: image.Rect(0, 0, width, height)}}}.Append(nil)
	}
	w.take(t, "a")
	must(t, rude.Send(slices.Concat(rfb.AppendSetEncodings(nil, nil), resize(800, 600), keyMessage(true, 'x'))))
	seen(t, "the key behind it", func() bool { keys, _ := x.down(t); return len(keys) > 0 })
	w.keeper.Free()
	w.take(t, "b")
	must(t, polite.Send(slices.Concat(resize(16384, 16384), resize(800, 600))))
	seen(t, "800x600", func() bool { return size() == "800x600" })
	w.keeper.Release("b")
	seen(t, "1440x900 again", func() bool { return size() == "1440x900" })
}

// RFB-14, RFB-03 on a real server: a viewer that changes its list, with the lease
// flipped between, is never hung up on and gets its pictures.
func TestRFB14OnXvnc(t *testing.T) {
	server := startXvnc(t)
	w := realWorld(t, server)
	list := []rfb.Encoding{rfb.Raw, rfb.DesktopSize, rfb.ExtendedDesktopSize, rfb.QEMUKey, rfb.Fence, rfb.ContinuousUpdates}
	c := w.arrive(t, "a", list...)
	updates := rfb.AppendContinuousUpdates(nil, true, image.Rect(0, 0, 800, 600))
	stop := rfb.AppendContinuousUpdates(nil, false, image.Rect(0, 0, 800, 600))
	request := rfb.FenceMessage{Flags: rfb.FenceRequest, Payload: []byte("?")}.Append(nil)
	// To withdraw fences in use is what Xvnc hangs up on with no relay between too.
	for i, said := range [][]byte{
		nil, rfb.AppendSetEncodings(nil, nil), updates, request, rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.Raw}), updates,
		rfb.AppendSetEncodings(nil, list), request, updates, stop,
	} {
		must(t, c.Send(append(said, rfb.UpdateRequest{Area: image.Rect(0, 0, 9, 9)}.Append(nil)...)))
		for {
			msg, err := c.Read(t.Context())
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			if msg.Type == rfb.TypeFramebufferUpdate {
				break
			}
		}
		if i%2 == 0 {
			w.take(t, "a")
		} else {
			w.keeper.Free()
		}
	}
}

// RFB-01: however often somebody only knocks, the next viewer comes in.
func TestRFB01KnocksLockNobodyOut(t *testing.T) {
	server := startXvnc(t)
	w := realWorld(t, server)
	for range 8 {
		p := w.knock("v", ticket.Watch)
		p.conn.Close()
		<-p.end
	}
	c := w.arrive(t, "a")
	if _, err := c.Screenshot(t.Context()); err != nil {
		t.Error(err)
	}
}
