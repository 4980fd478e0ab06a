// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jezek/xgb/res"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/shared/screen"
)

// Focus is who gets what is typed (threats.md X44).
type Focus struct {
	// Client names the X client whose window has the keyboard's focus, for EndClient. It is
	// 0 where that is one of the desktop's own programs, or nobody.
	Client uint32
	// PID is the client's process as this one sees it, 0 where the X server does not know it.
	PID int
	// Program is the name of the file that the client's process runs, by the kernel's word,
	// where that may be asked; empty where the X server does not know the process.
	Program screen.Untrusted
	// Title is the client's claim.
	Title screen.Untrusted
	// Grabbed says that a client has grabbed the keyboard, or the server, and gets every key
	// whoever has the focus. Only known where it was looked for.
	Grabbed bool
}

// Focus says who gets what is typed. With grabs it also tries whether the keyboard is
// grabbed, for which the protocol has no question: it grabs it for a moment if it is free,
// of which windows hear by focus events of mode NotifyGrab and NotifyUngrab, which toolkits
// pass over. A menu that is open keeps its own grab.
func (d *Desktop) Focus(ctx context.Context, grabs bool) (Focus, error) {
	own := d.ofDesktop()
	own[os.Getpid()] = struct{}{}
	return watched(ctx, d, "look for the focus", func() (Focus, error) { return d.view.focus(own, grabs) })
}

// EndClient ends the X connection of a client that Focus named, and with it the program as
// far as it is one of windows. A client that has left is no error, and another one that got
// its number meanwhile stays.
func (d *Desktop) EndClient(ctx context.Context, client uint32, pid int) error {
	own := d.ofDesktop()
	own[os.Getpid()] = struct{}{}
	_, err := watched(ctx, d, "end a program", func() (struct{}, error) { return struct{}{}, d.view.endClient(client, pid, own) })
	return err
}

func (x *xclient) focus(own map[int]struct{}, grabs bool) (Focus, error) {
	f, err := x.focused(own)
	if err != nil {
		return f, fmt.Errorf("look for the focus: %w", err)
	}
	if grabs {
		if f.Grabbed, err = x.grabbed(); err != nil {
			return f, fmt.Errorf("look for a grab: %w", err)
		}
	}
	return f, nil
}

func (x *xclient) focused(own map[int]struct{}) (Focus, error) {
	reply, err := xproto.GetInputFocus(x.conn).Reply()
	if err != nil {
		return Focus{}, err
	}
	window := reply.Focus
	if window == xproto.InputFocusNone || window == xproto.InputFocusPointerRoot || window == x.root {
		return Focus{}, nil
	}
	client, pid, err := x.owner(uint32(window))
	if _, ours := own[pid]; isXError(err) || client == 0 || ours {
		return Focus{}, nil // closed meanwhile, or nobody to be told of
	}
	if err != nil {
		return Focus{}, err
	}
	f := Focus{Client: client, PID: pid, Program: programOf(pid)}
	f.Title, err = x.titleOf(client, window)
	return f, err
}

// owner is the client that made a resource, and its process: 0 where the server does not
// know it.
func (x *xclient) owner(resource uint32) (client uint32, pid int, err error) {
	if err := x.extension(extensionResource); err != nil {
		return 0, 0, err
	}
	spec := res.ClientIdSpec{Client: resource, Mask: res.ClientIdMaskClientXID | res.ClientIdMaskLocalClientPID}
	reply, err := res.QueryClientIds(x.conn, 1, []res.ClientIdSpec{spec}).Reply()
	if err != nil {
		return 0, 0, err
	}
	for _, id := range reply.Ids {
		client = id.Spec.Client
		if id.Spec.Mask&res.ClientIdMaskLocalClientPID != 0 && len(id.Value) > 0 {
			pid = int(int32(id.Value[0]))
		}
	}
	return client, pid, nil
}

// titleOf is the title of the client's window that the window manager calls active, and
// else of the focused one.
func (x *xclient) titleOf(client uint32, focused xproto.Window) (screen.Untrusted, error) {
	window := focused
	active, err := x.number(x.root, "_NET_ACTIVE_WINDOW", 0)
	if err != nil {
		return screen.Untrusted{}, err
	}
	if active != 0 {
		if owner, _, err := x.owner(active); err == nil && owner == client {
			window = xproto.Window(active)
		}
	}
	var w Window
	if err := x.describeText(window, &w); err != nil && !isXError(err) {
		return screen.Untrusted{}, err
	}
	return w.Title, nil
}

// programOf names the file, and where that is hidden what the process calls itself.
func programOf(pid int) screen.Untrusted {
	if pid <= 0 {
		return screen.Untrusted{}
	}
	if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		return screen.Distrust(filepath.Base(path))
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return screen.Distrust(strings.TrimSpace(string(name)))
}

// grabbed tries to grab the keyboard. The server is held meanwhile, so that no other client
// comes in between. A key may, and is lost: do not look while somebody types.
func (x *xclient) grabbed() (bool, error) {
	xproto.GrabServer(x.conn)
	grab := xproto.GrabKeyboard(x.conn, true, x.root, xproto.TimeCurrentTime, xproto.GrabModeAsync, xproto.GrabModeAsync)
	xproto.UngrabKeyboard(x.conn, xproto.TimeCurrentTime)
	xproto.UngrabServer(x.conn)
	reply, err := grab.Reply()
	if err != nil {
		return false, err
	}
	return reply.Status == xproto.GrabStatusAlreadyGrabbed || reply.Status == xproto.GrabStatusFrozen, nil
}

func (x *xclient) endClient(client uint32, pid int, own map[int]struct{}) error {
	if _, ours := own[pid]; ours {
		return errors.New("end a program: it is one of the desktop's own")
	}
	owner, now, err := x.owner(client)
	if isXError(err) || err == nil && (owner == 0 || now != pid) {
		return nil // it has left
	}
	if err != nil {
		return fmt.Errorf("end a program: %w", err)
	}
	if err := x.cut(owner, pid); err != nil {
		return fmt.Errorf("end a program: %w", err)
	}
	return nil
}
