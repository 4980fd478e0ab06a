// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"image"
	"slices"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// R6: keys, pointer, size and key codes pass for the holder alone.
func TestR6HolderOnly(t *testing.T) {
	w := newWorld(t)
	holder, other, watcher := w.come(t, "a", ticket.Control), w.come(t, "b", ticket.Control), w.come(t, "a-too", ticket.Watch)
	w.take(t, "a")
	all := slices.Concat(keyMessage(true, 'x'), keyMessage(false, 'x'), pointerMessage(1, 5, 6), pointerMessage(0, 5, 6), qemuMessage(true, 'y', 21), qemuMessage(false, 'y', 21))
	resize := rfb.Resize{Size: rfb.Size{WidthPx: 640, HeightPx: 480}, Screens: []rfb.Screen{{ID: 7, Area: image.Rect(0, 0, 640, 480)}}}.Append(nil)
	announce := rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.ExtendedDesktopSize})
	for i, p := range []*person{holder, other, watcher} {
		p.send(t, announce, all, resize)
		p.sync(t, w, w.x.output(i))
	}
	if got, want := joined(w.x.inputs()), slices.Concat(all, resize); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	for i := range 3 {
		for _, m := range w.x.output(i).messages {
			if m.Input() {
				t.Errorf("viewer %d: %x on its own connection", i, []byte(m))
			}
		}
	}
}

// SEC-03: a ticket that watches gives no input, also with the holder's own id.
func TestSEC03WatchTicketOfTheHolder(t *testing.T) {
	w := newWorld(t)
	w.take(t, "a")
	p := w.come(t, "a", ticket.Watch)
	p.send(t, keyMessage(true, 'x'))
	p.sync(t, w, w.x.output(0))
	if got := w.x.inputs(); len(got) > 0 || w.attachedViewer("a").mayInput() {
		t.Errorf("%x", got)
	}
	p.conn.Close()
	<-p.end
	if !w.keeper.Holds("a") {
		t.Error("the end of a watching stream moved the lease")
	}
}

// R6, RFB-05: decided per message, so what follows a harmless one in a frame is
// judged by itself, and a change between two keys applies to the second.
func TestR6PerMessage(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 9, 9)}.Append(nil)
	p.send(t, request, keyMessage(true, 'x'), keyMessage(false, 'x'))
	p.sync(t, w, w.x.output(0))
	w.take(t, "a")
	p.send(t, keyMessage(true, 'y'))
	w.x.await(func() bool { return len(w.x.inputsLocked()) == 1 })
	w.keeper.Release("a")
	p.send(t, keyMessage(false, 'y'), keyMessage(true, 'z'), request)
	p.sync(t, w, w.x.output(0))
	if got, want := joined(w.x.inputs()), slices.Concat(keyMessage(true, 'y'), keyMessage(false, 'y')); !bytes.Equal(got, want) {
		t.Errorf("%x", got)
	}
	if got := w.x.output(0).stream(); bytes.Count(got, request) != 2 {
		t.Errorf("requests are missing: %x", got)
	}
}

// L7, LSE-09: every change of hands releases what is down, in the form it was pressed,
// and a late release is not passed on.
func TestL7HeldKeysReleased(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	w.take(t, "a")
	p.send(t, keyMessage(true, 0xffe1), qemuMessage(true, '1', 2), keyMessage(true, 'A'), keyMessage(false, 'A'),
		pointerMessage(1, 100, 100), pointerMessage(1, 140, 120))
	w.x.await(func() bool { return len(w.x.inputsLocked()) == 6 })
	w.keeper.Release("a")
	want := slices.Concat(qemuMessage(false, '1', 2), keyMessage(false, 0xffe1), pointerMessage(0, 140, 120))
	if got := joined(w.x.inputs()[6:]); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	p.send(t, keyMessage(false, 0xffe1), pointerMessage(0, 140, 120))
	p.sync(t, w, w.x.output(0))
	if n := len(w.x.inputs()); n != 9 {
		t.Errorf("%d messages after the release", n)
	}
}

// L7: a QEMU key is let go by its code: Shift may have changed its keysym meanwhile.
func TestL7KeyCode(t *testing.T) {
	var p pressed
	for _, m := range [][]byte{qemuMessage(true, '1', 2), qemuMessage(true, 'a', 30), qemuMessage(true, 'a', 30), qemuMessage(false, '!', 2), keyMessage(false, 'a')} {
		p.track(m)
	}
	if got := p.appendReleases(nil); !bytes.Equal(got, qemuMessage(false, 'a', 30)) {
		t.Errorf("%x", got)
	}
	for i := range uint32(1000) {
		if p.track(keyMessage(true, 0x1000+i)) != (i < maxPressed-1) {
			t.Fatalf("key %d", i)
		}
	}
}

// L7: a viewer that vanishes keeps the lease but no key.
func TestL7VanishedViewer(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	w.take(t, "a")
	p.send(t, keyMessage(true, 0xffe3))
	w.x.await(func() bool { return len(w.x.inputsLocked()) == 1 })
	p.conn.Close()
	if end := <-p.end; end.Code != Abnormal || end.Deliberate() {
		t.Errorf("%v", end)
	}
	if got := joined(w.x.inputs()[1:]); !bytes.Equal(got, keyMessage(false, 0xffe3)) {
		t.Errorf("%x", got)
	}
	if l, _ := w.keeper.Lease(); !l.HeldBy("a") || l.Away.IsZero() {
		t.Errorf("%+v", l)
	}
}

// L7: when the release cannot be written the connection is closed, which releases
// everything, and the change of hands does not wait for a screen that is stuck. The
// next action opens another.
func TestL7StuckScreen(t *testing.T) {
	for _, writing := range []bool{true, false} { // when the hand-back comes
		w := newWorld(t)
		p := w.come(t, "a", ticket.Control)
		w.take(t, "a")
		p.send(t, keyMessage(true, 0xffe3))
		w.x.await(func() bool { return len(w.x.inputsLocked()) == 1 })
		w.x.stickBehindNext()
		p.send(t, keyMessage(true, 'w'))
		if writing {
			p.send(t, keyMessage(true, 'x'))
			w.x.await(func() bool { return bytes.HasSuffix(w.x.begun, keyMessage(true, 'x')) })
		} else {
			p.send(t, rfb.UpdateRequest{Area: corner}.Append(nil)) // the key before it is through
			w.x.await(func() bool { return bytes.HasSuffix(w.x.begun, rfb.UpdateRequest{Area: corner}.Append(nil)) })
		}
		begin := time.Now()
		w.keeper.Release("a")
		if took := time.Since(begin); took > 300*time.Millisecond || took < hurryTimeout {
			t.Errorf("a stuck screen held the hand-back up for %v", took)
		}
		w.x.tell(func() { w.x.stuck = false })
		if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "q"}}); err != nil {
			t.Fatal(err)
		}
		got := joined(w.x.inputs())
		if !bytes.HasSuffix(got, slices.Concat(keyMessage(true, 'q'), keyMessage(false, 'q'))) || bytes.Contains(got, keyMessage(true, 'x')) {
			t.Errorf("%x", got)
		}
	}
}

// L17: the hand-back gives the agent the geometry it had, whoever changed it.
func TestL17GeometryRestored(t *testing.T) {
	w := newWorld(t)
	w.come(t, "b", ticket.Control)
	if _, err := w.gate.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	announce := rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.ExtendedDesktopSize})
	small := rfb.Resize{Size: rfb.Size{WidthPx: 640, HeightPx: 480}, Screens: []rfb.Screen{{ID: 7, Area: image.Rect(0, 0, 640, 480)}}}
	for _, handBack := range []func(){
		func() { w.keeper.Release("a") },
		func() { w.take(t, "b"); w.keeper.Free() },
	} {
		p := w.come(t, "a", ticket.Control)
		w.take(t, "a")
		w.resized(small.Size, func() { p.send(t, announce, small.Append(nil)) })
		w.resized(rfb.Size{WidthPx: 800, HeightPx: 600}, handBack)
		p.conn.Close()
		<-p.end
	}
}

// resized does something and waits until the relay has heard of the new size: it asks
// for the next update then.
func (w *world) resized(size rfb.Size, do func()) {
	requests := func() (n int) {
		for _, c := range w.x.conns {
			for _, m := range c.messages {
				if c.input && m.Type() == rfb.TypeFramebufferUpdateRequest {
					n++
				}
			}
		}
		return n
	}
	var before int
	w.x.tell(func() { before = requests() })
	do()
	w.x.await(func() bool { return w.x.size == size && requests() > before })
}

// R5a, RFB-08, RFB-09: a size passes only from a viewer that announced it, and within
// the maximum.
func TestR5aResize(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxSize = rfb.Size{WidthPx: 1000, HeightPx: 1000} })
	p := w.come(t, "a", ticket.Control)
	w.take(t, "a")
	resize := func(width, height, screens int) []byte {
		r := rfb.Resize{Size: rfb.Size{WidthPx: width, HeightPx: height}}
		for range screens {
			r.Screens = append(r.Screens, rfb.Screen{ID: 7, Area: image.Rect(0, 0, width, height)})
		}
		return r.Append(nil)
	}
	announce := func(e ...rfb.Encoding) []byte { return rfb.AppendSetEncodings(nil, e) }
	p.send(t, resize(700, 500, 1)) // not announced
	p.send(t, announce(rfb.ExtendedDesktopSize), announce(), resize(700, 501, 1))
	p.send(t, announce(rfb.ExtendedDesktopSize), resize(16384, 16384, 1), resize(1001, 10, 1), resize(0, 10, 1), resize(700, 502, 0), resize(1000, 1000, 1))
	p.sync(t, w, w.x.output(0))
	if got := w.x.inputs(); len(got) != 1 || !bytes.Equal(got[0], resize(1000, 1000, 1)) {
		t.Errorf("%x", got)
	}
	for _, m := range w.x.output(0).messages {
		if m.Type() == rfb.TypeSetDesktopSize {
			t.Error("a size on the viewer's own connection")
		}
	}
	// The relay's own connection announced it before anything else.
	w.x.await(func() bool { return w.x.conns[1].input || w.x.conns[0].input })
}

// R14: the holder's position goes to its own connection too, without buttons, once
// for what came together, and only while it holds.
func TestR14PointerRepeated(t *testing.T) {
	w := newWorld(t)
	p, q := w.come(t, "a", ticket.Control), w.come(t, "b", ticket.Control)
	w.take(t, "a")
	cursor := rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.Cursor})
	for i, one := range []*person{p, q} {
		one.send(t, cursor, pointerMessage(0, 1, 1), pointerMessage(1, 2, 2), pointerMessage(1, 3, 3))
		one.sync(t, w, w.x.output(i))
	}
	if got := w.x.output(0).stream(); !bytes.Contains(got, pointerMessage(0, 3, 3)) || bytes.Contains(got, pointerMessage(0, 2, 2)) {
		t.Errorf("%x", got)
	}
	for _, m := range w.x.output(1).messages {
		if m.Input() {
			t.Errorf("to one that does not hold: %x", []byte(m))
		}
	}
	fences := func() int {
		n := 0
		for _, c := range w.x.conns {
			for _, m := range c.messages {
				if f, ok := m.Fence(); ok && c.input && f.Flags&rfb.FenceRequest != 0 {
					n++
				}
			}
		}
		return n
	}
	w.keeper.Release("a")
	w.x.mu.Lock()
	if n := fences(); n != 2 {
		t.Errorf("%d fences before the new epoch", n)
	}
	w.x.mu.Unlock()
	w.take(t, "a")
	w.keeper.Release("a")
	w.x.mu.Lock()
	if n := fences(); n != 2 {
		t.Errorf("%d fences although nothing was repeated", n)
	}
	w.x.mu.Unlock()
}

// A server without key codes gets keysyms.
func TestKeysWithoutKeyCodes(t *testing.T) {
	w := newWorld(t)
	w.x.plain = true
	p := w.come(t, "a", ticket.Control)
	w.take(t, "a")
	p.send(t, qemuMessage(true, 'y', 21), qemuMessage(false, 'y', 21), qemuMessage(true, 0, 21))
	p.sync(t, w, w.x.output(0))
	if got := joined(w.x.inputs()); !bytes.Equal(got, slices.Concat(keyMessage(true, 'y'), keyMessage(false, 'y'))) {
		t.Errorf("%x", got)
	}
}

// X24: the clipboard does not travel in RFB; a holder's text goes to the hook, before
// the keys behind it, and nobody else's.
func TestX24PasteGoesToTheHook(t *testing.T) {
	var order []string
	var w *world
	w = newWorld(t, func(o *Options) {
		o.Paste = func(_ context.Context, text string) error {
			order = append(order, text)
			if n := len(w.x.inputs()); n != 0 {
				t.Errorf("%d keys came before the text", n)
			}
			return errors.New("clipboard is off")
		}
	})
	p, q := w.come(t, "a", ticket.Control), w.come(t, "b", ticket.Control)
	w.take(t, "a")
	text := rfb.CutText{Data: []byte("gr\xfc\xdfe")}.Append(nil)
	q.send(t, text)
	q.sync(t, w, w.x.output(1))
	p.send(t, rfb.CutText{Extended: true, Flags: rfb.ClipboardCaps}.Append(nil), text, keyMessage(true, 'v'))
	p.sync(t, w, w.x.output(0))
	if !slices.Equal(order, []string{"grüße"}) {
		t.Errorf("%q", order)
	}
	for _, c := range w.x.conns {
		for _, m := range c.messages {
			if m.Type() == rfb.TypeClientCutText {
				t.Errorf("cut text reached the server: %x", []byte(m))
			}
		}
	}
}
