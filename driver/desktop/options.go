// SPDX-License-Identifier: MPL-2.0

package desktop

import "io"

// Look names how much of the Xfce desktop is shown.
type Look string

const (
	// LookLean is one panel (menu, tasklist, clock), a pre-scaled wallpaper
	// and no desktop icons. It is the default: it starts in a third of the
	// time and memory of Xfce's own look.
	LookLean Look = "lean"
	// LookFull adds launchers, a notification area, a pager and desktop icons.
	LookFull Look = "full"
)

// Options say what one desktop is to look like and where its files lie.
// All directories belong to the screen's uid.
type Options struct {
	// Display is the X display number. The caller has claimed it and keeps
	// the claim until Start returns.
	Display int

	WidthPx, HeightPx int
	Depth             int // bits per pixel of the root window: 16 or 24; 0 means 24
	DPI               int // 0 means 96
	GLX               bool
	KeyboardLayout    string // XKB layouts as in "us" or "de(nodeadkeys),us"; empty means "us"
	Look              Look   // empty means LookLean

	Home       string // HOME; made 0700 if it is absent
	ConfigHome string // XDG_CONFIG_HOME; empty means Home/.config
	RuntimeDir string // XDG_RUNTIME_DIR; made 0700 if it is absent
	// XDir holds Xauthority, the environment file, the bus socket and, until
	// the session holds it, rfb.sock. It exists, 0700.
	XDir string

	// Env is the base environment, already reduced by the caller to what the
	// desktop may see (behaviours S5). What would tie the desktop to another
	// one (DISPLAY, bus and session addresses) is dropped here once more.
	Env []string

	// Command, when not empty, is started on the desktop once it is ready.
	Command []string

	// Executable is our own binary, run for the fence self-test; empty means
	// /proc/self/exe.
	Executable string

	// Log receives the output of all programs, line by line, prefixed by the
	// program's name. Writes that block delay nobody: lines are dropped and
	// counted instead. Nil discards.
	Log io.Writer

	// Notify, when set, is called with each event, in order, from one
	// goroutine that it may not block for long. Calls end when Done is closed.
	Notify func(Event)
}

// EventKind names a step in the life of a desktop.
type EventKind string

const (
	EventXServerReady EventKind = "xserver_ready" // Xvnc answers X and RFB clients
	EventWMReady      EventKind = "wm_ready"      // _NET_SUPPORTING_WM_CHECK is announced
	EventPainted      EventKind = "painted"       // panel and desktop have drawn themselves
	EventRestarted    EventKind = "restarted"     // a component that died was started again
	EventGaveUp       EventKind = "gave_up"       // a component died too often and stays away
	EventFence        EventKind = "fence"         // the self-test of the fence has an answer
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
	ID                uint32
	PID               int    // as the window claims; 0 if it does not
	Title, Class      string // untrusted text of whoever owns the window
	Desktop           int
	X, Y              int
	WidthPx, HeightPx int
	Type              string // "normal", "dock", "desktop", "dialog", …
	Active, Minimized bool
}

// Fence is what the self-test found: whether a program on the desktop can
// reach the X server or the session round the lease.
type Fence struct {
	Enforced bool
	Reason   string // why it is only advisory; empty when enforced
}
