// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/shared/screen"
)

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

	// Crowded says that others wait until this start is done: then the work of all counts,
	// and not when the first picture of this one is there.
	Crowded bool
	// ClipboardEvents asks for EventClipboard.
	ClipboardEvents bool

	// Command, when not empty, is started on the desktop once it is ready.
	Command []string

	// Opener, when set, is what opens addresses on this desktop.
	Opener *Opener

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

// keyboardForm is the form of rule X42: XKB names only, since they reach xkbcomp.
var keyboardForm = regexp.MustCompile(`^[a-z]{2,8}(\([a-z0-9_-]+\))?(,[a-z]{2,8}(\([a-z0-9_-]+\))?){0,3}$`)

// maxSocketPath is the longest path a Unix socket can have, see unix(7).
const maxSocketPath = 107

func (o Options) withDefaults() Options {
	if o.Depth == 0 {
		o.Depth = 24
	}
	if o.DPI == 0 {
		o.DPI = 96
	}
	if o.KeyboardLayout == "" {
		o.KeyboardLayout = builtinLayout
	}
	if o.Look == "" {
		o.Look = LookLean
	}
	if o.ConfigHome == "" {
		o.ConfigHome = filepath.Join(o.Home, ".config")
	}
	if o.Executable == "" {
		o.Executable = "/proc/self/exe"
	}
	return o
}

// validate reports every fault at once. It expects withDefaults.
func (o Options) validate() error {
	var faults screen.Faults
	if o.Display < 0 || o.Display > 59535 { // 6000 + display is a port number in X's own terms
		faults.Add("display", strconv.Itoa(o.Display), "must be from 0 to 59535")
	}
	if o.WidthPx < screen.MinWidthPx || o.WidthPx > screen.MaxWidthPx ||
		o.HeightPx < screen.MinHeightPx || o.HeightPx > screen.MaxHeightPx {
		faults.Add("geometry", fmt.Sprintf("%dx%d", o.WidthPx, o.HeightPx), fmt.Sprintf("must be from %dx%d to %dx%d",
			screen.MinWidthPx, screen.MinHeightPx, screen.MaxWidthPx, screen.MaxHeightPx))
	}
	if o.Depth != 16 && o.Depth != 24 {
		faults.Add("depth", strconv.Itoa(o.Depth), "must be 16 or 24")
	}
	if o.DPI < 48 || o.DPI > 480 {
		faults.Add("dpi", strconv.Itoa(o.DPI), "must be from 48 to 480")
	}
	if !keyboardForm.MatchString(o.KeyboardLayout) {
		faults.Add("keyboard_layout", o.KeyboardLayout, `must be up to four XKB layouts such as "us" or "de(nodeadkeys),fr"`)
	}
	if o.Look != LookLean && o.Look != LookFull {
		faults.Add("look", string(o.Look), "must be lean or full")
	}
	for _, dir := range []struct{ field, path string }{
		{"home", o.Home}, {"config_home", o.ConfigHome}, {"runtime_dir", o.RuntimeDir}, {"x_dir", o.XDir},
	} {
		if !filepath.IsAbs(dir.path) || strings.ContainsAny(dir.path, "\x00\n") {
			faults.Add(dir.field, dir.path, "must be an absolute path in one line")
		}
	}
	for _, socket := range []string{o.rfbSocket(), o.busSocket()} {
		if len(socket) > maxSocketPath {
			faults.Add("x_dir", o.XDir, fmt.Sprintf("is too long: the socket %s would have %d bytes, at most %d",
				filepath.Base(socket), len(socket), maxSocketPath))
		}
	}
	if os.Geteuid() == 0 {
		faults.Add("user", "0", "a desktop never runs as root")
	}
	return faults.Err()
}

func (o Options) rfbSocket() string  { return filepath.Join(o.XDir, "rfb.sock") }
func (o Options) busSocket() string  { return filepath.Join(o.XDir, "bus") }
func (o Options) xauthority() string { return filepath.Join(o.XDir, "Xauthority") }
func (o Options) wallpaper() string {
	return filepath.Join(o.Home, ".local/share/botscreen/wallpaper.png")
}
