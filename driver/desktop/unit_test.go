// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"errors"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

func plainOptions() Options {
	return Options{
		Display: 20, WidthPx: 1440, HeightPx: 900,
		Home: "/data/bot", RuntimeDir: "/run/bot/rt", XDir: "/run/bot/x",
	}.withDefaults()
}

// S5, DSP-15: nothing of another desktop reaches ours, and ours is complete.
func TestS5Environment(t *testing.T) {
	o := plainOptions()
	o.Env = []string{
		"PATH=/usr/bin", "NOMAD_ALLOC_ID=a1", "FOO=bar=baz",
		"DBUS_SESSION_BUS_ADDRESS=theirs", "DBUS_STARTER_BUS_TYPE=theirs", "SESSION_MANAGER=theirs", "DISPLAY=:0", "XAUTHORITY=theirs",
		"WAYLAND_DISPLAY=theirs", "XDG_RUNTIME_DIR=theirs", "XDG_SESSION_ID=theirs", "XDG_CONFIG_HOME=theirs", "GTK_MODULES=theirs",
		"DESKTOP_AUTOSTART_ID=theirs", "ICEAUTHORITY=theirs", "NOTIFY_SOCKET=theirs", "LISTEN_FDS=3", "SSH_AUTH_SOCK=theirs",
		"HOME=/theirs", "no-equals-sign", "=nameless",
	}
	env := environment(o)
	for _, entry := range env {
		if strings.Contains(entry, "theirs") || strings.HasPrefix(entry, "LISTEN_") || !strings.Contains(entry, "=") {
			t.Errorf("kept %q", entry)
		}
	}
	for _, want := range []string{
		"PATH=/usr/bin", "NOMAD_ALLOC_ID=a1", "FOO=bar=baz", "LANG=C.UTF-8", "HOME=/data/bot", "DISPLAY=:20",
		"XAUTHORITY=/run/bot/x/Xauthority", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/bot/x/bus", "XDG_RUNTIME_DIR=/run/bot/rt",
		"XDG_CONFIG_HOME=/data/bot/.config", "GDK_BACKEND=x11", "QT_QPA_PLATFORM=xcb", "NO_AT_BRIDGE=1",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestLangIsKept(t *testing.T) {
	o := plainOptions()
	o.Env = []string{"LANG=de_DE.UTF-8"}
	if env := environment(o); !slices.Contains(env, "LANG=de_DE.UTF-8") || slices.Contains(env, "LANG=C.UTF-8") {
		t.Errorf("LANG is not the one given: %q", env)
	}
}

// X2: what a job or person can set stays out of what runs while rfb.sock has a path.
func TestX2ServersGetACleanEnvironment(t *testing.T) {
	o := plainOptions()
	o.Env = []string{"LD_PRELOAD=/home/evil.so", "LD_LIBRARY_PATH=/home", "GIO_EXTRA_MODULES=/home", "GCONV_PATH=/home", "TZ=UTC"}
	env := serverEnvironment(o)
	for _, entry := range env {
		if strings.Contains(entry, "=/home") {
			t.Errorf("kept %q", entry)
		}
	}
	if !slices.Contains(env, "TZ=UTC") {
		t.Error("no TZ")
	}
}

// S13: any path makes an address that names the same path.
func TestS13BusAddress(t *testing.T) {
	for path, want := range map[string]string{
		"/run/a-b_c.d/bus": "unix:path=/run/a-b_c.d/bus",
		`/it's "a" b/bus`:  "unix:path=/it%27s%20%22a%22%20b/bus",
		"/a,b;c=d%e/bus":   "unix:path=/a%2cb%3bc%3dd%25e/bus",
		"/ä/bus":           "unix:path=/%c3%a4/bus",
	} {
		if got := busAddress(path); got != want {
			t.Errorf("busAddress(%q) = %q, want %q", path, got, want)
		}
	}
}

// S1, X0, X2, X3, X24: the flags that keep the X server closed.
func TestS1ServerArguments(t *testing.T) {
	args := xserverArgs(plainOptions())
	joined := strings.Join(args, " ")
	for _, want := range []string{
		":20 ", "-geometry 1440x900", "-depth 24", "-dpi 96", "-auth /run/bot/x/Xauthority",
		"-rfbport -1", "-rfbunixpath /run/bot/x/rfb.sock", "-rfbunixmode 0600", "-SecurityTypes None", "-AlwaysShared", "-nolisten tcp",
		"-UseBlacklist=0", "-MaxCutText 262144", "-SendCutText=0", "-AcceptCutText=0", "-SendPrimary=0", "-SetPrimary=0",
		"-extension RECORD", "-extension XTEST", "+extension SECURITY", "-extension GLX",
	} {
		if !strings.Contains(joined, want) {
			t.Errorf("no %q in %q", want, joined)
		}
	}
	if !slices.Contains(args, "-AllowOverride=CompareFB") {
		t.Error("X clients may override parameters")
	}
	o := plainOptions()
	o.GLX = true
	if strings.Contains(strings.Join(xserverArgs(o), " "), "GLX") {
		t.Error("GLX is off although it was asked for")
	}
}

// X42: what is no layout, size or path is refused, and all faults come at once.
func TestX42AllFaultsAtOnce(t *testing.T) {
	o := Options{
		Display: -1, WidthPx: 1, HeightPx: 1, Depth: 8, DPI: 1, KeyboardLayout: "us; rm -rf /", Look: "shiny",
		Home: "relative", RuntimeDir: "/a\nb", XDir: "/" + strings.Repeat("x", 200),
	}.withDefaults()
	err := o.validate()
	var faults screen.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("validate: %v, want faults", err)
	}
	for _, field := range []string{"display", "geometry", "depth", "dpi", "keyboard_layout", "look", "home", "config_home", "runtime_dir", "x_dir"} {
		if !slices.ContainsFunc(faults, func(f screen.FieldError) bool { return f.Field == field }) {
			t.Errorf("no fault for %s in %v", field, err)
		}
	}
}

func TestX42KeyboardForms(t *testing.T) {
	for layout, want := range map[string]bool{
		"us": true, "de(nodeadkeys)": true, "us,de(nodeadkeys),fr": true, "us,de,fr,ru": true,
		"": false, "us,": false, "us,de,fr,ru,it": false, "us;id": false, "US": false, "us(a b)": false, "us\n": false, "-xkbdir": false,
	} {
		if got := keyboardForm.MatchString(layout); got != want {
			t.Errorf("%q accepted: %v, want %v", layout, got, want)
		}
	}
}

func TestSplitLayout(t *testing.T) {
	for spec, want := range map[string][2]string{
		"us":                   {"us", ""},
		"de(nodeadkeys)":       {"de", "nodeadkeys"},
		"us,de(nodeadkeys),fr": {"us,de,fr", ",nodeadkeys,"},
	} {
		layouts, variants := splitLayout(spec)
		if layouts != want[0] || variants != want[1] {
			t.Errorf("%q is %q %q, want %q", spec, layouts, variants, want)
		}
	}
}

// What setxkbmap -print writes, which the map was taken from.
func TestKeymapSource(t *testing.T) {
	for layout, want := range map[string][2]string{
		"us":                      {`"evdev+aliases(qwerty)"`, `"pc+us+inet(evdev)"`},
		"fr":                      {`"evdev+aliases(azerty)"`, `"pc+fr+inet(evdev)"`},
		"de(nodeadkeys)":          {`"evdev+aliases(qwertz)"`, `"pc+de(nodeadkeys)+inet(evdev)"`},
		"us,de(nodeadkeys),fr,ru": {`"evdev+aliases(qwerty)"`, `"pc+us+de(nodeadkeys):2+fr:3+ru:4+inet(evdev)"`},
	} {
		source := keymapSource(layout)
		if !strings.Contains(source, want[0]) || !strings.Contains(source, want[1]) {
			t.Errorf("%s: %s", layout, source)
		}
	}
}

// S14, DSP-10: everything that is missing is named at once.
func TestDSP10AllMissingProgramsAtOnce(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("a plan is refused for root before programs are looked for; TestDSP10NothingLeftAfterMissing covers it")
	}
	_, err := NewPlan(plainOptions(), func(string) (string, error) { return "", fs.ErrNotExist })
	var missing *MissingError
	if !errors.As(err, &missing) || len(missing.Programs) != 7 {
		t.Fatalf("plan: %v, want 7 missing programs", err)
	}
}

func TestSeedsAreComplete(t *testing.T) {
	for _, look := range []Look{LookLean, LookFull} {
		o := plainOptions()
		o.Look, o.Home, o.KeyboardLayout = look, `/data/a "b" & c`, "de(nodeadkeys)"
		files, err := seeds(o)
		must(t, err)
		var paths []string
		for _, f := range files {
			paths = append(paths, f.Path)
			if bytes.Contains(f.Content, []byte("@")) {
				t.Errorf("%s: a placeholder is left", f.Path)
			}
		}
		for _, channel := range []string{"xfwm4", "xfce4-panel", "xfce4-desktop", "xsettings", "xfce4-keyboard-shortcuts", "keyboard-layout", "displays"} {
			if !slices.Contains(paths, channelDir+"/"+channel+".xml") {
				t.Errorf("%s: no channel %s", look, channel)
			}
		}
	}
}

// S4, X6: seeding changes nothing that exists and follows no link out.
func TestX6SeedingFollowsNoLinks(t *testing.T) {
	outside := t.TempDir()
	config := filepath.Join(t.TempDir(), "config")
	must(t, os.MkdirAll(filepath.Join(config, "kept"), 0o700))
	must(t, os.WriteFile(filepath.Join(config, "kept/mine"), []byte("mine"), 0o600))
	must(t, os.Symlink(filepath.Join(outside, "planted"), filepath.Join(config, "dangling")))
	must(t, os.Symlink(outside, filepath.Join(config, "elsewhere")))
	must(t, os.WriteFile(filepath.Join(config, "file"), nil, 0o600))
	err := plant(config, []Seed{
		{Path: "kept/mine", Content: []byte("ours")},
		{Path: "dangling", Content: []byte("ours")},
		{Path: "elsewhere/planted", Content: []byte("ours")},
		{Path: "file/below", Content: []byte("ours")},
		{Path: "new/deep/file", Content: []byte("ours")},
	})
	must(t, err)
	if text, _ := os.ReadFile(filepath.Join(config, "kept/mine")); string(text) != "mine" {
		t.Errorf("a file was overwritten: %q", text)
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("written outside: %v", entries)
	}
	if target, err := os.Readlink(filepath.Join(config, "dangling")); err != nil {
		t.Errorf("the dangling link is gone: %s, %v", target, err)
	}
	info, err := os.Stat(filepath.Join(config, "new/deep/file"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file: %v, %v", info, err)
	}
}

func TestWallpaperHasTheDesktopsSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b/wallpaper.png")
	for _, size := range [][2]int{{640, 400}, {640, 400}, {1023, 767}, {3840, 2160}} {
		must(t, ensureWallpaper(path, size[0], size[1]))
		f, err := os.Open(path)
		must(t, err)
		picture, err := png.Decode(f)
		must(t, err)
		_ = f.Close()
		if got := picture.Bounds().Size(); got.X != size[0] || got.Y != size[1] {
			t.Errorf("picture is %v, want %v", got, size)
		}
	}
	before, err := os.Stat(path)
	must(t, err)
	must(t, ensureWallpaper(path, 3840, 2160))
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("a fitting picture was drawn again")
	}
}

// X0: under the filter no network socket can be made, Unix ones can.
func TestX0FilterRefusesSockets(t *testing.T) {
	type attempt struct {
		domain int
		err    error
	}
	results := make(chan []attempt, 1)
	ring := make(chan error, 1)
	confined := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		confined <- confineThread()
		var all []attempt
		for _, domain := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_VSOCK, unix.AF_ALG} {
			fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			all = append(all, attempt{domain, err})
		}
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
		ring <- errno
		results <- all
	}()
	must(t, <-confined)
	if err := <-ring; err != unix.ENOSYS {
		t.Errorf("io_uring_setup: %v, want ENOSYS", err)
	}
	for _, a := range <-results {
		want := error(unix.EAFNOSUPPORT)
		if a.domain == unix.AF_UNIX {
			want = nil
		}
		if !errors.Is(a.err, want) {
			t.Errorf("socket of domain %d: %v, want %v", a.domain, a.err, want)
		}
	}
	// The other threads are not confined.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	_ = unix.Close(fd)
}

func TestIgnoredSignals(t *testing.T) {
	got, err := ignoredSignals([]byte("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t1\n"))
	if want := []os.Signal{syscall.SIGHUP, syscall.SIGPIPE}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestUnknownDispensableOption(t *testing.T) {
	err := error(&DiedError{Program: nameXServer, LastLines: []string{"(EE) ", "(EE) Unrecognized option: -UseBlacklist=0", "(EE) "}})
	if got := unknownOption(err); got != "-UseBlacklist=0" {
		t.Errorf("unknown option is %q", got)
	}
	for option, count := range dispensable {
		args := xserverArgs(plainOptions())
		if at := slices.Index(args, option); at < 0 || at+count > len(args) {
			t.Errorf("dispensable option %s is not among the arguments", option)
		}
	}
}

// While others wait nothing is done twice: the settings are there before who reads them.
func TestSettingsComeFirstInACrowd(t *testing.T) {
	settings, others := Program{Name: nameSettings}, []Program{{Name: nameWM}, {Name: namePanel}}
	alone := Plan{Components: others}
	alone.addSettings(settings)
	if len(alone.Components) != 2 || len(alone.Late) != 1 || alone.Late[0].Name != nameSettings {
		t.Errorf("alone: %+v, late %+v", alone.Components, alone.Late)
	}
	crowded := Plan{Options: Options{Crowded: true}, Components: others}
	crowded.addSettings(settings)
	if len(crowded.Components) != 3 || crowded.Components[0].Name != nameSettings || crowded.Late != nil {
		t.Errorf("crowded: %+v, late %+v", crowded.Components, crowded.Late)
	}
}

func TestCountNamed(t *testing.T) {
	list := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0: 2 0 00010000 0001 01 5 /run/x/rfb.sock\n0: 3 0 0 0001 03 6 /run/x/rfb.sock\n0: 3 0 0 0001 03 7\n0: 3 0 0 0001 03 8 @/run/x/rfb.sock\n0: 3 0 0 0001 03 9 /other/run/x/rfb.sock"
	if n, err := countNamed(strings.NewReader(list), "/run/x/rfb.sock"); n != (bound{listeners: 1, connections: 1}) || err != nil {
		t.Errorf("%+v, %v, want one of each", n, err)
	}
}
