// SPDX-License-Identifier: MPL-2.0

package desktop

import "github.com/botscreen/botscreen/shared/screen"

// EventKind names a step in the life of a desktop.
type EventKind string

const (
	EventXServerReady EventKind = "xserver_ready" // Xvnc answers X and RFB clients
	EventWMReady      EventKind = "wm_ready"      // _NET_SUPPORTING_WM_CHECK is announced
	EventPainted      EventKind = "painted"       // panel and desktop have drawn themselves
	EventRestarted    EventKind = "restarted"     // a component that died was started again
	EventGaveUp       EventKind = "gave_up"       // a component died too often and stays away
	EventFence        EventKind = "fence"         // the self-test of the fence has an answer
	EventClipboard    EventKind = "clipboard"     // a program copied something; at most one a second
	EventExited       EventKind = "exited"        // Options.Command has ended
)

// Event is one step in the life of a desktop.
type Event struct {
	Kind    EventKind
	Program string // for restarted, gave_up, exited
	Detail  string // for people; never holds secrets
	PID     int    // for exited, restarted
	Status  int    // for exited: the exit code, or 128 + signal
}

// Window is one top-level window as the window manager lists it.
type Window struct {
	ID           uint32
	PID          int              // as the window claims; 0 if it does not
	Title, Class screen.Untrusted // whatever the window's owner wrote
	Type         string           // "normal", "dock", "desktop", "dialog", ...
	Desktop      int              // the workspace; -1 on all
	X, Y         int              // of the content, relative to the root window
	WidthPx      int
	HeightPx     int
	Active       bool
	Minimized    bool
}

// Fence is what the self-test found: whether a program on the desktop can
// reach the X server or the session round the lease.
type Fence struct {
	Enforced bool
	Reason   string // why it is only advisory; empty when enforced
}
