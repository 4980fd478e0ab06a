// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/damage"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

// AwaitReady connects to a display that is up and returns when its desktop is
// ready as Start defines it: window manager announced, panel and background
// painted. step, which may be nil, is told "wm", "panel" and "background" on the
// way. It serves to measure desktops that somebody else starts.
func AwaitReady(ctx context.Context, n display.Number, cookie display.Cookie, step func(what string)) error {
	x, err := dialX(ctx, n, cookie, 0)
	if err != nil {
		return err
	}
	defer x.close()
	if step == nil {
		step = func(string) {}
	}
	w, err := newWatcher(x, step)
	if err != nil {
		return err
	}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("await desktop: %w: %s", err, strings.Join(w.missing(), ", "))
	}
	return nil
}

// part is a window that has to be painted before a desktop is ready.
type part string

const (
	partPanel   part = "panel"
	partDesktop part = "background"
)

// watcher follows what happens on a fresh X server until the desktop is ready
// (rule S6). It asks again only when the server says that something changed.
type watcher struct {
	*xclient
	// step is told when the window manager is there and when a part is painted.
	step func(what string)

	wmReady  bool
	known    map[xproto.Window]part
	painted  map[part]bool
	pending  map[xproto.Window]*canvas // mapped, but nothing seen in it yet
	settled  <-chan time.Time          // fires when drawing has come to rest
	lastDraw *time.Timer
}

// canvas is a window whose first paint is awaited.
type canvas struct {
	damage damage.Damage
	drawn  bool // something was drawn, if only background
}

// quiet is how long a window that has been drawn to, but shows nothing but its
// background colour, must rest before it is taken for painted: somebody may
// have chosen a black wallpaper.
const quiet = 400 * time.Millisecond

func newWatcher(x *xclient, step func(what string)) (*watcher, error) {
	if err := x.extension(extensionDamage); err != nil {
		return nil, fmt.Errorf("watch display: DAMAGE: %w", err)
	}
	if _, err := damage.QueryVersion(x.conn, 1, 1).Reply(); err != nil {
		return nil, fmt.Errorf("watch display: DAMAGE: %w", err)
	}
	err := xproto.ChangeWindowAttributesChecked(x.conn, x.root, xproto.CwEventMask,
		[]uint32{xproto.EventMaskPropertyChange}).Check()
	if err != nil {
		return nil, fmt.Errorf("watch display: root window: %w", err)
	}
	rest := time.NewTimer(time.Hour)
	rest.Stop()
	return &watcher{
		xclient: x, step: step, lastDraw: rest, settled: rest.C,
		known: map[xproto.Window]part{}, painted: map[part]bool{}, pending: map[xproto.Window]*canvas{},
	}, nil
}

// missing names what has not happened yet, in words.
func (w *watcher) missing() []string {
	var missing []string
	if !w.wmReady {
		missing = append(missing, "no window manager announced itself")
	}
	for _, p := range []part{partPanel, partDesktop} {
		if !w.painted[p] {
			missing = append(missing, fmt.Sprintf("the %s was not painted", p))
		}
	}
	return missing
}

// run returns when the desktop is ready, ctx ends or the connection breaks.
func (w *watcher) run(ctx context.Context) error {
	events := make(chan xgb.Event)
	stopped := make(chan struct{})
	defer close(stopped)
	go pump(w.conn, events, stopped)
	if err := w.look(); err != nil { // what happened before we selected events
		return err
	}
	for !w.ready() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.settled:
			w.acceptPlain()
		case event, open := <-events:
			if !open {
				return errors.New("watch display: connection closed")
			}
			if err := w.handle(event); err != nil {
				return err
			}
		}
	}
	return nil
}

// pump moves events from the library's blocking call to a channel. It ends with
// the connection, or at the next event after the watcher has stopped; from then
// on events are thrown away, so that the library never blocks on a full queue.
func pump(conn *xgb.Conn, events chan<- xgb.Event, stopped <-chan struct{}) {
	defer close(events)
	for {
		event, err := conn.WaitForEvent()
		if event == nil && err == nil {
			return
		}
		if event == nil {
			continue // an error about a window that is gone again
		}
		select {
		case events <- event:
		case <-stopped:
		}
	}
}

func (w *watcher) ready() bool { return w.wmReady && w.painted[partPanel] && w.painted[partDesktop] }

func (w *watcher) handle(event xgb.Event) error {
	switch e := event.(type) {
	case xproto.PropertyNotifyEvent:
		if e.Window == w.root {
			return w.look()
		}
	case xproto.MapNotifyEvent:
		if w.known[e.Window] != "" {
			return w.follow(e.Window)
		}
	case damage.NotifyEvent:
		window := xproto.Window(e.Drawable)
		if c := w.pending[window]; c != nil {
			damage.Subtract(w.conn, c.damage, 0, 0) // or it would not tell again
			c.drawn = true
			w.lastDraw.Reset(quiet)
			return w.inspect(window)
		}
	}
	return nil
}

// look reads what the window manager announces on the root window.
func (w *watcher) look() error {
	if !w.wmReady {
		announced, err := w.managerAnnounced()
		if err != nil || !announced {
			return err
		}
		w.wmReady = true
		w.step("wm")
	}
	windows, err := w.numbers(w.root, "_NET_CLIENT_LIST")
	if err != nil {
		return err
	}
	for _, id := range windows {
		if err := w.meet(xproto.Window(id)); err != nil {
			return err
		}
	}
	return nil
}

// managerAnnounced checks _NET_SUPPORTING_WM_CHECK as the EWMH specification
// wants it checked: the window it names bears the same property. A property
// left by a dead manager does not count.
func (w *watcher) managerAnnounced() (bool, error) {
	const check = "_NET_SUPPORTING_WM_CHECK"
	named, err := w.numbers(w.root, check)
	if err != nil || len(named) != 1 {
		return false, err
	}
	itself, err := w.numbers(xproto.Window(named[0]), check)
	if isXError(err) {
		return false, nil // the window is gone
	}
	return err == nil && len(itself) == 1 && itself[0] == named[0], err
}

// meet classifies a window the first time it is listed.
func (w *watcher) meet(window xproto.Window) error {
	if _, seen := w.known[window]; seen {
		return nil
	}
	types, err := w.numbers(window, "_NET_WM_WINDOW_TYPE")
	if isXError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	w.known[window] = ""
	for name, p := range map[string]part{"_NET_WM_WINDOW_TYPE_DOCK": partPanel, "_NET_WM_WINDOW_TYPE_DESKTOP": partDesktop} {
		atom, err := w.atom(name)
		if err != nil {
			return err
		}
		if len(types) > 0 && types[0] == uint32(atom) {
			w.known[window] = p
			return w.follow(window)
		}
	}
	return nil
}

// follow asks to be told of drawing in a window once it is on the screen.
func (w *watcher) follow(window xproto.Window) error {
	if w.painted[w.known[window]] || w.pending[window] != nil {
		return nil
	}
	// Selected before the look at the map state, so that no map is missed.
	xproto.ChangeWindowAttributes(w.conn, window, xproto.CwEventMask, []uint32{xproto.EventMaskStructureNotify})
	attributes, err := xproto.GetWindowAttributes(w.conn, window).Reply()
	if isXError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch display: window %#x: %w", uint32(window), err)
	}
	if attributes.MapState != xproto.MapStateViewable {
		return nil
	}
	d, err := damage.NewDamageId(w.conn)
	if err != nil {
		return fmt.Errorf("watch display: %w", err)
	}
	damage.Create(w.conn, d, xproto.Drawable(window), damage.ReportLevelNonEmpty)
	w.pending[window] = &canvas{damage: d}
	return w.inspect(window) // it may have been drawn before
}

// inspect looks at the pixels of a window.
func (w *watcher) inspect(window xproto.Window) error {
	shown, err := w.showsSomething(window)
	if isXError(err) {
		return nil // gone again, or partly outside the screen: acceptPlain decides
	}
	if err != nil || !shown {
		return err
	}
	w.accept(window)
	return nil
}

func (w *watcher) accept(window xproto.Window) {
	damage.Destroy(w.conn, w.pending[window].damage)
	delete(w.pending, window)
	if p := w.known[window]; !w.painted[p] {
		w.painted[p] = true
		w.step(string(p))
	}
}

// acceptPlain takes windows for painted that were drawn to and came to rest
// without showing anything but black.
func (w *watcher) acceptPlain() {
	for window, c := range w.pending {
		if c.drawn {
			w.accept(window)
		}
	}
}

// showsSomething reports whether a window shows what its program draws: whether sampled
// pixels are not black, which is what Xvnc fills fresh windows with. Of the background one
// is enough. A panel is a window with others in it, and one of those may be drawn before
// the panel itself is: half of its pixels count.
func (w *watcher) showsSomething(window xproto.Window) (bool, error) {
	size, err := xproto.GetGeometry(w.conn, xproto.Drawable(window)).Reply()
	if err != nil {
		return false, err
	}
	const rows = 4
	var images []xproto.GetImageCookie
	for i := range rows {
		y := int(size.Height) * (2*i + 1) / (2 * rows)
		images = append(images, xproto.GetImage(w.conn, xproto.ImageFormatZPixmap, xproto.Drawable(window),
			0, int16(y), size.Width, 1, 0x00ffffff))
	}
	shown := 0
	for _, request := range images {
		reply, err := request.Reply()
		if err != nil {
			return false, err
		}
		shown += coloured(reply.Data)
	}
	if w.known[window] == partPanel {
		return 2*shown >= rows*int(size.Width), nil
	}
	return shown > 0, nil
}

// coloured counts the pixels, of four bytes, that have any colour. Every fourth byte is
// padding that the plane mask has cleared.
func coloured(data []byte) (count int) {
	for ; len(data) >= 4; data = data[4:] {
		if data[0]|data[1]|data[2]|data[3] != 0 {
			count++
		}
	}
	return count
}

// isXError tells errors of the server about a request, mostly a window that is
// gone again, from a broken connection.
func isXError(err error) bool {
	var answer xgb.Error
	return errors.As(err, &answer)
}
