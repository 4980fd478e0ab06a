// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"testing"

	"github.com/jezek/xgb/xproto"
)

// stage is an X server on which the test is window manager, panel and background.
type stage struct {
	*xclient
	t *testing.T
}

func (s stage) window(parent xproto.Window, x, y int16, width, height uint16) xproto.Window {
	s.t.Helper()
	w, err := xproto.NewWindowId(s.conn)
	must(s.t, err)
	must(s.t, xproto.CreateWindowChecked(s.conn, 0, w, parent, x, y, width, height, 0, xproto.WindowClassInputOutput, 0,
		xproto.CwBackPixel|xproto.CwOverrideRedirect, []uint32{0, 1}).Check())
	return w
}

func (s stage) set(w xproto.Window, name, kind string, values ...uint32) {
	s.t.Helper()
	property, err := s.atom(name)
	must(s.t, err)
	typ, err := s.atom(kind)
	must(s.t, err)
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, v)
	}
	must(s.t, xproto.ChangePropertyChecked(s.conn, xproto.PropModeReplace, w, property, typ, 32, uint32(len(values)), data).Check())
}

func (s stage) number(name string) uint32 {
	s.t.Helper()
	atom, err := s.atom(name)
	must(s.t, err)
	return uint32(atom)
}

func (s stage) show(w xproto.Window) {
	s.t.Helper()
	must(s.t, xproto.MapWindowChecked(s.conn, w).Check())
}

// paint fills a window with white.
func (s stage) paint(w xproto.Window, width, height uint16) {
	s.t.Helper()
	must(s.t, xproto.ChangeWindowAttributesChecked(s.conn, w, xproto.CwBackPixel, []uint32{0xffffff}).Check())
	must(s.t, xproto.ClearAreaChecked(s.conn, false, w, 0, 0, width, height).Check())
}

// S6: a panel of which only an icon has drawn itself is not painted yet; one that has drawn
// its bar is, and so is a background of which a corner shows.
func TestS6PanelIsPaintedWhole(t *testing.T) {
	x, _ := plainServer(t)
	s := stage{x, t}
	w, err := newWatcher(x, func(string) {})
	must(t, err)
	manager := s.window(s.root, -10, -10, 1, 1)
	background, panel := s.window(s.root, 0, 0, 800, 600), s.window(s.root, 0, 0, 800, 32)
	icon, corner := s.window(panel, 4, 4, 24, 24), s.window(background, 0, 60, 20, 500)
	for _, one := range []xproto.Window{s.root, manager} {
		s.set(one, "_NET_SUPPORTING_WM_CHECK", "WINDOW", uint32(manager))
	}
	s.set(panel, "_NET_WM_WINDOW_TYPE", "ATOM", s.number("_NET_WM_WINDOW_TYPE_DOCK"))
	s.set(background, "_NET_WM_WINDOW_TYPE", "ATOM", s.number("_NET_WM_WINDOW_TYPE_DESKTOP"))
	s.set(s.root, "_NET_CLIENT_LIST", "WINDOW", uint32(background), uint32(panel))
	for _, one := range []xproto.Window{background, corner, panel, icon} {
		s.show(one)
	}
	s.paint(icon, 24, 24)
	must(t, w.look())
	if !w.wmReady || w.painted[partPanel] || w.painted[partDesktop] {
		t.Fatalf("with an icon alone: manager %t, painted %v", w.wmReady, w.painted)
	}
	s.paint(corner, 20, 500)
	must(t, w.inspect(background))
	s.paint(panel, 800, 32)
	must(t, w.inspect(panel))
	if !w.ready() {
		t.Errorf("missing %v", w.missing())
	}
}
