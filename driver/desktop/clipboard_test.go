// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

// otherProgram is another X client of the desktop with a clipboard of its own.
func (r *rig) otherProgram() *clipboard {
	r.t.Helper()
	cookie, err := cookieFromFile(filepath.Join(r.options.XDir, fileAuthority))
	must(r.t, err)
	c, err := openClipboard(r.t.Context(), display.Number(r.options.Display), cookie, 0, nil)
	must(r.t, err)
	r.t.Cleanup(c.close)
	return c
}

// copied makes the session read the clipboard.
func (r *rig) copied() string {
	r.t.Helper()
	n := r.order(order{Op: "clipboard"})
	if n.Err != "" {
		r.t.Errorf("read clipboard: %s", n.Err)
	}
	return n.Text
}

func (r *rig) orders(op, text string) {
	r.t.Helper()
	if n := r.order(order{Op: op, Text: text}); n.Err != "" {
		r.t.Errorf("%s: %s", op, n.Err)
	}
}

// X24: text goes both ways between the session's own X client and the programs of the
// desktop, every character of it, and in parts when it is long; a wipe takes it from
// whoever has it (L8).
func TestX24Clipboard(t *testing.T) {
	r := newRig(t)
	r.start()
	other := r.otherProgram()
	if got := r.copied(); got != "" {
		t.Errorf("a new desktop's clipboard holds %q", got)
	}
	long := strings.Repeat("ä€漢🙂", MaxClipboard/12)
	for _, text := range []string{"ä€漢", "a\nb\tc", "", long, strings.Repeat("x", maxPart), strings.Repeat("x", maxPart+1), strings.Repeat("y", MaxClipboard)} {
		r.orders("set clipboard", text)
		if got, err := other.get(t.Context()); err != nil || got != text {
			t.Errorf("%d bytes arrived as %d, %v", len(text), len(got), err)
		}
		must(t, other.set(t.Context(), text+"!"[:min(1, MaxClipboard-len(text))]))
		if got := r.copied(); got != text+"!"[:min(1, MaxClipboard-len(text))] {
			t.Errorf("%d bytes came as %d", len(text), len(got))
		}
	}
	for _, name := range []string{selectionClipboard, selectionPrimary} {
		if owner := other.ownerOf(other.atom[name]); owner != other.window {
			t.Errorf("%s is window %#x's", name, owner)
		}
	}
	r.orders("wipe clipboard", "")
	for _, name := range []string{selectionClipboard, selectionPrimary} {
		if owner := other.ownerOf(other.atom[name]); owner != 0 {
			t.Errorf("after the wipe %s is window %#x's", name, owner)
		}
	}
	r.orders("set clipboard", "secret")
	r.orders("wipe clipboard", "")
	if got, err := other.get(t.Context()); got != "" || err != nil {
		t.Errorf("after the wipe there is %q, %v", got, err)
	}
	if n := r.order(order{Op: "set clipboard", Text: strings.Repeat("x", MaxClipboard+1)}); !strings.Contains(n.Err, "longer than") {
		t.Errorf("too long a text: %q", n.Err)
	}
}

// A program that has the clipboard and answers badly, too much or not at all costs its
// time and no more; a wipe does not wait for it.
func TestX24HostileOwner(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	window, err := xproto.NewWindowId(x.conn)
	must(t, err)
	must(t, xproto.CreateWindowChecked(x.conn, 0, window, x.root, -1, -1, 1, 1, 0, xproto.WindowClassInputOnly, 0, 0, nil).Check())
	clip, err := x.atom(selectionClipboard)
	must(t, err)
	incr, err := x.atom(typeINCR)
	must(t, err)
	utf8String, err := x.atom(targetUTF8)
	must(t, err)
	own := func() {
		t.Helper()
		must(t, xproto.SetSelectionOwnerChecked(x.conn, window, clip, xproto.TimeCurrentTime).Check())
	}
	// answerWith lets the owner answer each request with what put writes.
	answers := make(chan func(e xproto.SelectionRequestEvent) bool, 1)
	go func() {
		answer := func(xproto.SelectionRequestEvent) bool { return true }
		for {
			event, err := x.conn.WaitForEvent()
			if event == nil && err == nil {
				return
			}
			select {
			case answer = <-answers:
			default:
			}
			if e, ok := event.(xproto.SelectionRequestEvent); ok && answer(e) {
				n := xproto.SelectionNotifyEvent{Time: e.Time, Requestor: e.Requestor, Selection: e.Selection, Target: e.Target, Property: e.Property}
				xproto.SendEvent(x.conn, false, e.Requestor, 0, string(n.Bytes()))
			}
		}
	}()
	put := func(w xproto.Window, property, kind xproto.Atom, format byte, data string) {
		xproto.ChangeProperty(x.conn, xproto.PropModeReplace, w, property, kind, format, uint32(len(data)*8/int(format)), []byte(data))
	}
	for name, tc := range map[string]struct {
		answer func(e xproto.SelectionRequestEvent) bool
		want   string
	}{
		"never": {func(xproto.SelectionRequestEvent) bool { return false }, errClipboardSlow.Error()},
		"numbers": {func(e xproto.SelectionRequestEvent) bool {
			put(e.Requestor, e.Property, utf8String, 32, "12345678")
			return true
		}, ErrClipboardText.Error()},
		"nothing written": {func(xproto.SelectionRequestEvent) bool { return true }, ErrClipboardText.Error()},
		"too long": {func(e xproto.SelectionRequestEvent) bool {
			for range 6 {
				data := strings.Repeat("x", 60_000)
				xproto.ChangeProperty(x.conn, xproto.PropModeAppend, e.Requestor, e.Property, utf8String, 8, uint32(len(data)), []byte(data))
			}
			return true
		}, ErrClipboardLarge.Error()},
		"parts without end": {func(e xproto.SelectionRequestEvent) bool {
			put(e.Requestor, e.Property, incr, 32, "\x00\x00\x00\x00")
			go func() {
				for range 100 {
					put(e.Requestor, e.Property, utf8String, 8, strings.Repeat("x", 60_000))
				}
			}()
			return true
		}, ""}, // which limit it meets, if any, depends on how far it is when we look
		"parts that stop": {func(e xproto.SelectionRequestEvent) bool {
			put(e.Requestor, e.Property, incr, 32, "\xff\xff\xff\x7f")
			return true
		}, errClipboardSlow.Error()},
	} {
		answers <- tc.answer
		own()
		n := r.order(order{Op: "clipboard"})
		if refused := n.Err != "" || tc.want == ""; !refused || !strings.Contains(n.Err, tc.want) || n.Took > 7 || len(n.Text) > MaxClipboard {
			t.Errorf("%s: %q after %.1f s, want %q", name, n.Err, n.Took, tc.want)
		}
	}
	// Control characters and broken text are data; the zero byte some end with is not.
	answers <- func(e xproto.SelectionRequestEvent) bool {
		put(e.Requestor, e.Property, utf8String, 8, "a\xffb\x00")
		return true
	}
	own()
	if got := r.copied(); got != "a\ufffdb" {
		t.Errorf("broken text came as %q", got)
	}
	r.orders("set clipboard", "fine")
	if got := r.copied(); got != "fine" {
		t.Errorf("afterwards: %q", got)
	}
}

// L8: a wipe ends a fetch that waits for another program, at once.
func TestL8WipeDoesNotWait(t *testing.T) {
	r := newRig(t)
	r.start()
	silent, reader := r.otherProgram(), r.otherProgram()
	must(t, silent.set(t.Context(), "secret"))
	release := make(chan struct{})
	stopped := make(chan struct{})
	go func() { _ = silent.do(context.Background(), func() error { close(stopped); <-release; return nil }) }()
	<-stopped
	defer close(release)
	failed := make(chan error, 1)
	go func() { _, err := reader.get(context.Background()); failed <- err }()
	for { // until the fetch is under way: then its goroutine takes no job
		probe, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := reader.do(probe, func() error { return nil })
		cancel()
		if err != nil {
			break
		}
	}
	must(t, reader.wipe(t.Context()))
	if err := <-failed; !errors.Is(err, errWiped) {
		t.Errorf("the fetch ended with %v", err)
	}
}

// A copy on the desktop is told of, once for many; our own texts and wipes are not.
func TestClipboardEvents(t *testing.T) {
	r := newRig(t)
	r.options.ClipboardEvents = true
	r.start()
	other := r.otherProgram()
	r.orders("set clipboard", "ours")
	r.orders("wipe clipboard", "")
	must(t, other.set(t.Context(), "theirs"))
	r.event(EventClipboard)
	if got := r.copied(); got != "theirs" {
		t.Errorf("it holds %q", got)
	}
}

// The pointer is where it was put.
func TestPointer(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	must(t, xproto.WarpPointerChecked(x.conn, 0, x.root, 0, 0, 0, 0, 123, 45).Check()) // else it may still be on its way
	if n := r.order(order{Op: "pointer"}); n.Err != "" || n.Pointer != (Pointer{X: 123, Y: 45}) {
		t.Errorf("%+v, %s", n.Pointer, n.Err)
	}
}

// DSP-20: a change of the clipboard while a viewer is in the middle of its handshake
// leaves the server alive, in each state of it.
func TestDSP20ClipboardDuringHandshake(t *testing.T) {
	r := newRig(t)
	r.start()
	other := r.otherProgram()
	for name, state := range map[string]struct {
		send    string
		receive int
	}{
		"before the version":          {"", 0},
		"after the version":           {"RFB 003.008\n", 12 + 2},
		"after the security choice":   {"RFB 003.008\n\x01", 12 + 2 + 4},
		"after the handshake":         {"RFB 003.008\n\x01\x01", 12 + 2 + 4 + 24},
		"in the middle of a cut text": {"RFB 003.008\n\x01\x01\x06\x00\x00\x00\x00\x00\x00\x10half", 12 + 2 + 4 + 24},
	} {
		n := r.order(order{Op: "hold", Text: state.send, Layout: string(rune(state.receive))})
		if n.Err != "" {
			t.Errorf("%s: %s", name, n.Err)
		}
		for _, text := range []string{"one", "ä€漢", ""} {
			must(t, other.set(t.Context(), text))
			r.orders("set clipboard", text+"2")
			r.orders("wipe clipboard", "")
		}
		if n := r.order(order{Op: "dial"}); n.Greets != 100 {
			t.Errorf("%s: %d connections are greeted: %s", name, n.Greets, n.Err)
		}
	}
	r.screenshot()
}

// FuzzDecodeText: whatever a program calls text, what comes of it is UTF-8 and not longer
// than twice that, without the zero bytes it ends with.
func FuzzDecodeText(f *testing.F) {
	f.Add(byte(8), []byte("ä€漢\x00"), false)
	f.Add(byte(8), []byte("\xe4\xff"), true)
	f.Add(byte(32), []byte("1234"), false)
	f.Fuzz(func(t *testing.T, format byte, value []byte, latin1 bool) {
		text, ok := decodeText(format, value, latin1)
		if !utf8.ValidString(text) || strings.HasSuffix(text, "\x00") || !ok && text != "" || len(text) > 3*len(value) {
			t.Errorf("%q of %q", text, value)
		}
		if back := encodeLatin1([]byte(text)); latin1 && ok && string(back) != strings.TrimRight(string(value), "\x00") {
			t.Errorf("%q came back as %q", value, back)
		}
	})
}
