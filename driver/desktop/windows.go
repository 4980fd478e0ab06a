// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"fmt"
	"strings"

	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/shared/screen"
)

// maxWindows bounds the list: a client can open windows without end.
const maxWindows = 256

// Windows lists the top-level windows as the window manager stacks them, bottom
// to top, panel and background included. At most 256 are listed. Titles, types
// and pids are claims of the windows' owners.
func (d *Desktop) Windows(ctx context.Context) ([]Window, error) {
	return watched(ctx, d, "list windows", d.view.windows)
}

func (x *xclient) windows() ([]Window, error) {
	ids, err := x.numbers(x.root, "_NET_CLIENT_LIST_STACKING")
	if err != nil {
		return nil, fmt.Errorf("list windows: %w", err)
	}
	active, err := x.number(x.root, "_NET_ACTIVE_WINDOW", 0)
	if err != nil {
		return nil, fmt.Errorf("list windows: %w", err)
	}
	var all []Window
	for _, id := range ids[max(0, len(ids)-maxWindows):] {
		w, err := x.describe(xproto.Window(id))
		if isXError(err) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list windows: %w", err)
		}
		w.Active = id == active
		all = append(all, w)
	}
	return all, nil
}

// number reads the first value of a property, or the default where it is absent.
func (x *xclient) number(w xproto.Window, name string, absent uint32) (uint32, error) {
	values, err := x.numbers(w, name)
	if err != nil || len(values) == 0 {
		return absent, err
	}
	return values[0], nil
}

const onAllDesktops = 0xffffffff // EWMH, _NET_WM_DESKTOP

func (x *xclient) describe(id xproto.Window) (Window, error) {
	w := Window{ID: uint32(id)}
	pid, err := x.number(id, "_NET_WM_PID", 0)
	if err != nil {
		return w, err
	}
	workspace, err := x.number(id, "_NET_WM_DESKTOP", 0)
	if err != nil {
		return w, err
	}
	w.PID, w.Desktop = int(int32(pid)), int(workspace)
	if workspace == onAllDesktops {
		w.Desktop = -1
	}
	if err := x.describeText(id, &w); err != nil {
		return w, err
	}
	if err := x.describePlace(id, &w); err != nil {
		return w, err
	}
	state, err := x.names(id, "_NET_WM_STATE")
	for _, name := range state {
		w.Minimized = w.Minimized || name == "_NET_WM_STATE_HIDDEN"
	}
	return w, err
}

func (x *xclient) describeText(id xproto.Window, w *Window) error {
	title, err := x.text(id, "_NET_WM_NAME")
	if err == nil && title == "" {
		title, err = x.text(id, "WM_NAME")
	}
	if err != nil {
		return err
	}
	class, err := x.text(id, "WM_CLASS") // two strings, each ended by a zero byte
	if err != nil {
		return err
	}
	kinds, err := x.names(id, "_NET_WM_WINDOW_TYPE")
	if err != nil {
		return err
	}
	w.Type = "normal"
	if len(kinds) > 0 {
		kind, known := strings.CutPrefix(kinds[0], "_NET_WM_WINDOW_TYPE_")
		if known {
			w.Type = strings.ToLower(screen.Distrust(kind).String())
		}
	}
	w.Title = screen.Distrust(title)
	parts := strings.Split(strings.TrimRight(class, "\x00"), "\x00")
	w.Class = screen.Distrust(parts[len(parts)-1])
	return nil
}

func (x *xclient) describePlace(id xproto.Window, w *Window) error {
	size, err := xproto.GetGeometry(x.conn, xproto.Drawable(id)).Reply()
	if err != nil {
		return err
	}
	at, err := xproto.TranslateCoordinates(x.conn, id, x.root, 0, 0).Reply()
	if err != nil {
		return err
	}
	w.X, w.Y = int(at.DstX), int(at.DstY)
	w.WidthPx, w.HeightPx = int(size.Width), int(size.Height)
	return nil
}

// names reads a property of atoms as their names.
func (x *xclient) names(w xproto.Window, property string) ([]string, error) {
	atoms, err := x.numbers(w, property)
	if err != nil {
		return nil, err
	}
	const most = 16 // EWMH knows fewer states and types
	var names []string
	for _, a := range atoms[:min(len(atoms), most)] {
		reply, err := xproto.GetAtomName(x.conn, xproto.Atom(a)).Reply()
		if err != nil {
			return nil, err
		}
		names = append(names, reply.Name)
	}
	return names, nil
}
