// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"os"
	"testing"

	"github.com/jezek/xgb/xproto"
)

// thief opens a window of its own, past the window manager, and takes the focus.
func (r *rig) thief() (x *xclient, window xproto.Window) {
	r.t.Helper()
	x = r.x()
	window, err := xproto.NewWindowId(x.conn)
	must(r.t, err)
	must(r.t, xproto.CreateWindowChecked(x.conn, 0, window, x.root, 0, 0, 50, 50, 0, xproto.WindowClassInputOutput, 0,
		xproto.CwOverrideRedirect, []uint32{1}).Check())
	title := []byte("Sign in\x1b[31m")
	must(r.t, xproto.ChangePropertyChecked(x.conn, xproto.PropModeReplace, window, xproto.AtomWmName, xproto.AtomString, 8, uint32(len(title)), title).Check())
	must(r.t, xproto.MapWindowChecked(x.conn, window).Check())
	must(r.t, xproto.SetInputFocusChecked(x.conn, xproto.InputFocusParent, window, xproto.TimeCurrentTime).Check())
	return x, window
}

// X44: who has the focus is known by the X server's and the kernel's word, also past the
// window manager, and can be ended; the desktop's own programs are nobody.
func TestX44Focus(t *testing.T) {
	r := newRig(t)
	r.start()
	if f := r.order(order{Op: "focus"}); f.Err != "" || f.Focus.Client != 0 {
		t.Errorf("on an empty desktop: %+v, %s", f.Focus, f.Err)
	}
	x, window := r.thief()
	f := r.order(order{Op: "focus"}).Focus
	if f.Client == 0 || f.PID != os.Getpid() || f.Client&uint32(window) != f.Client || f.Program.String() != "desktop.test" || f.Title.String() != "Sign in·[31m" {
		t.Errorf("%+v, want the client of window %#x", f, uint32(window))
	}
	must(t, r.try(order{Op: "end client", Client: f.Client, PID: f.PID + 1}))
	if _, err := xproto.GetInputFocus(x.conn).Reply(); err != nil {
		t.Errorf("another program than the one that was named: %v", err)
	}
	must(t, r.try(order{Op: "end client", Client: f.Client, PID: f.PID}))
	if _, err := xproto.GetInputFocus(x.conn).Reply(); err == nil {
		t.Error("the program is still connected")
	}
	if now := r.order(order{Op: "focus"}).Focus; now.Client != 0 {
		t.Errorf("after its end: %+v", now)
	}
	must(t, r.try(order{Op: "end client", Client: f.Client, PID: f.PID})) // it has left
	for _, pid := range r.pidsOf("xfwm4") {
		if r.try(order{Op: "end client", Client: f.Client, PID: pid}) == nil {
			t.Error("the window manager may be ended")
		}
	}
	r.stop()
}

// X44: a grab of the keyboard is seen, and looking for one leaves none behind.
func TestX44Grab(t *testing.T) {
	r := newRig(t)
	r.start()
	looks := func() bool {
		t.Helper()
		n := r.order(order{Op: "focus", Grabs: true})
		if n.Err != "" {
			t.Fatal(n.Err)
		}
		return n.Focus.Grabbed
	}
	for range 2 { // the first leaves none behind
		if looks() {
			t.Error("a grab where nobody has one")
		}
	}
	x := r.x()
	grab, err := xproto.GrabKeyboard(x.conn, false, x.root, xproto.TimeCurrentTime, xproto.GrabModeAsync, xproto.GrabModeAsync).Reply()
	if err != nil || grab.Status != xproto.GrabStatusSuccess {
		t.Fatalf("%+v, %v", grab, err)
	}
	if !looks() {
		t.Error("a grab was not seen")
	}
	x.close()
	if r.order(order{Op: "focus"}).Focus.Grabbed {
		t.Error("a grab without having looked")
	}
	r.stop()
}
