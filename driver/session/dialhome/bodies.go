// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// Plan is what a session needs to bring its desktop up. It travels in a memfd: it
// holds the job's environment, which may be long and secret.
type Plan struct {
	Display         int      `json:"display"`
	WidthPx         int      `json:"width_px"`
	HeightPx        int      `json:"height_px"`
	Depth           int      `json:"depth"`
	DPI             int      `json:"dpi"`
	GLX             bool     `json:"glx"`
	KeyboardLayout  string   `json:"keyboard_layout"`
	Look            string   `json:"look"`
	Home            string   `json:"home"`
	XDir            string   `json:"x_dir"`
	RuntimeDir      string   `json:"runtime_dir"`
	Env             []string `json:"env"`
	Command         []string `json:"command"`
	ClipboardEvents bool     `json:"clipboard_events,omitempty"` // report EventClipboard
	Crowded         bool     `json:"crowded,omitempty"`          // others wait until the start that this came with is done
	// Browser is the screen's browser; nil: it has none.
	Browser         *screen.BrowserOptions `json:"browser,omitempty"`
	KnownVersions   []screen.KnownVersion  `json:"known_versions,omitempty"` // of executables on the node, for a screen on it
	Deadline        time.Duration          `json:"deadline"`
	FenceExemptions []string               `json:"fence_exemptions,omitempty"` // why the fence can only be advisory, known before the start
}

// Start asks for the desktop. With HasPlan a memfd with the Plan rides along;
// without, the session uses the plan it has.
type Start struct {
	HasPlan bool `json:"has_plan"`
	// Display replaces the plan's number where that one was taken meanwhile.
	Display int `json:"display,omitempty"`
}

// Desktop is what runs inside, as the session sees it.
type Desktop struct {
	State   State    `json:"state"`
	Display int      `json:"display"`
	XPID    int      `json:"x_pid"` // Xvnc, in the session's pid namespace
	XStart  uint64   `json:"x_start"`
	Fence   *Fence   `json:"fence,omitempty"`
	Width   int      `json:"width_px"`
	Height  int      `json:"height_px"`
	Lines   []string `json:"lines,omitempty"` // last output, untrusted
	Browser *Browser `json:"browser,omitempty"`
}

// XServer is Xvnc's identity on this node; meaningful where session and supervisor
// share a pid namespace.
func (d Desktop) XServer() process.Identity {
	return process.Identity{PID: d.XPID, Start: d.XStart, Boot: process.Boot()}
}

// Browser is the screen's browser as the session sees it; its words come from inside.
type Browser struct {
	Executable string `json:"executable,omitempty"` // empty: none has been found yet
	Version    string `json:"version,omitempty"`    // with its name, as in "Chromium 156.0.8078.114"
	Sandbox    string `json:"sandbox,omitempty"`    // "namespaces", "setuid" or "off"
	Running    bool   `json:"running,omitempty"`
	Trouble    string `json:"trouble,omitempty"` // why there is none, or how the last one ended
	Warning    string `json:"warning,omitempty"`
}

// Peer is what a dial leads to.
type Peer string

// The peers of a dial. An empty one is Xvnc's RFB side.
const (
	PeerRFB Peer = "rfb"
	PeerCDP Peer = "cdp" // the session itself, which serves the browser's CDP endpoint over HTTP/1.1
)

// Dial asks for a connection.
type Dial struct {
	Peer Peer `json:"peer,omitempty"`
	// Compare says that it is for somebody who looks: the X server shall from now on send
	// only what has changed.
	Compare bool `json:"compare,omitempty"`
}

// BrowserOpen asks for an address to be shown; without one the browser comes up or to the
// front.
type BrowserOpen struct {
	URL string `json:"url,omitempty"`
}

// BrowserOpened says what became of it.
type BrowserOpened struct {
	Started    bool `json:"started,omitempty"`     // the browser did not run before
	HandedOver bool `json:"handed_over,omitempty"` // a browser that somebody started by hand shows it
}

// BrowserPage is what people see of the browser; all of it comes from web pages.
type BrowserPage struct {
	Origin string `json:"origin,omitempty"` // of the page in front, without path and query; empty: there is none
	Filled bool   `json:"filled,omitempty"` // a password field that can be seen holds something
	Unsure bool   `json:"unsure,omitempty"` // the page in front may be one that did not answer in time
}

// State is what a session's desktop does.
type State string

// States of a session's desktop.
const (
	Idle     State = "idle" // no desktop yet, or asleep
	Starting State = "starting"
	Running  State = "running"
	Dozing   State = "dozing" // the desktop is being ended, and may be started again
	Ended    State = "ended"
)

// Fence is the result of the self-test.
type Fence struct {
	Enforced bool   `json:"enforced"`
	Reason   string `json:"reason,omitempty"`
}

// Exec asks for a command. Without TTY the request carries its stdin, stdout and
// stderr, ends of pipes whose other ends never leave the supervisor; with TTY the
// answer carries the master of a terminal. A command ends with the connection it was
// asked for over.
type Exec struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"` // empty: the home
	TTY  bool     `json:"tty"`
	// Rows and Columns are the terminal's size before the command starts; 0: not known.
	Rows    uint16 `json:"rows,omitempty"`
	Columns uint16 `json:"columns,omitempty"`
	// GUI gives it the desktop's own cookie: it may do on the display what any of the
	// desktop's programs may. Without, its cookie is an untrusted one (X3).
	GUI bool `json:"gui,omitempty"`
	// Marked lets clear find it and all that it ever starts (X20).
	Marked bool `json:"marked,omitempty"`
}

// Clear ends what marked commands started and left; with All it ends every process but
// the desktop's own and cuts every other X client off (X3). The answer comes when that is
// done, or says why it could not be.
type Clear struct {
	All bool `json:"all,omitempty"`
}

// ExecFiles is how many descriptors ride in a request for a command without terminal.
const ExecFiles = 3

// Signal signals a command's process group, named by the id of the request that
// started it; Command 0 is every program on the desktop but the X server.
type Signal struct {
	Command uint64 `json:"command"`
	Signal  int    `json:"signal"`
}

// Stop ends the desktop: Signal first (0: TERM), KILL after Grace.
type Stop struct {
	Signal int           `json:"signal"`
	Grace  time.Duration `json:"grace"`
}

// Sleep ends the desktop: TERM, KILL after Grace.
type Sleep struct {
	Grace time.Duration `json:"grace"`
}

// MaxWindows bounds a list of windows, so that it fits into a packet.
const MaxWindows = 64

// Windows is what is on the desktop, from bottom to top.
type Windows struct {
	Windows []Window `json:"windows,omitempty"`
}

// Window is one window; its words are its owner's.
type Window struct {
	ID        uint32 `json:"id"`
	Title     string `json:"title,omitempty"`
	Class     string `json:"class,omitempty"`
	Type      string `json:"type,omitempty"`
	X         int    `json:"x"`
	Y         int    `json:"y"`
	WidthPx   int    `json:"width_px"`
	HeightPx  int    `json:"height_px"`
	Active    bool   `json:"active,omitempty"`
	Minimized bool   `json:"minimized,omitempty"`
}

// Pointer is where the mouse pointer is; bit 0 of Buttons is the left one.
type Pointer struct {
	X       int `json:"x"`
	Y       int `json:"y"`
	Buttons int `json:"buttons,omitempty"`
}

// LookForFocus asks who gets what is typed, and with Grabs whether somebody has grabbed the
// keyboard.
type LookForFocus struct {
	Grabs bool `json:"grabs,omitempty"`
}

// Focus is who gets what is typed; Client is 0 where that is the desktop itself or nobody.
// Its words are from inside.
type Focus struct {
	Client  uint32 `json:"client,omitempty"`
	PID     int    `json:"pid,omitempty"` // of the client, in the session's pid namespace
	Program string `json:"program,omitempty"`
	Title   string `json:"title,omitempty"`
	Grabbed bool   `json:"grabbed,omitempty"`
}

// EndClient names a client as Focus did.
type EndClient struct {
	Client uint32 `json:"client"`
	PID    int    `json:"pid"`
}

// BrowserRenew asks for the page in front to be loaded again, with Fresh for an empty window.
type BrowserRenew struct {
	Fresh bool `json:"fresh,omitempty"`
}

// MaxClipboard bounds the text of a clipboard, in bytes.
const MaxClipboard = 256 << 10

// Text says how much of the file that rode in the request is the text.
type Text struct {
	Bytes int `json:"bytes"`
}

// Exited reports the end of a command.
type Exited struct {
	Command uint64 `json:"command"`
	Code    int    `json:"code"` // 128+n when a signal ended it
	Signal  int    `json:"signal,omitempty"`
}

// Note is the body of events that only carry words. The words come from inside.
type Note struct {
	Program string `json:"program,omitempty"`
	Text    string `json:"text"`
}

// Encode marshals a body; bodies are our own types and always marshal.
func Encode(body any) json.RawMessage {
	text, err := json.Marshal(body)
	if err != nil {
		panic("dialhome: " + err.Error())
	}
	return text
}

// Decode reads a body into v.
func Decode(body json.RawMessage, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return &ProtocolError{"body of another form"}
	}
	return nil
}
