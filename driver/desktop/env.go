// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// defaultPath is for a base environment without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// foreign are variables that would tie a program to another desktop, session or
// service manager (rule S5, DSP-15). A trailing * stands for any rest.
var foreign = []string{
	"DBUS_*", "DISPLAY", "XAUTHORITY", "WAYLAND_*", "SESSION_MANAGER", "DESKTOP_*", "XDG_*", "ICEAUTHORITY",
	"GDK_*", "GTK_*", "QT_*", "GIO_*", "GSETTINGS_*", "NO_AT_BRIDGE", "AT_SPI_*", "GNOME_*", "KDE_*", "XFCE_*",
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNUPGHOME", "WINDOWID", "XMODIFIERS",
	"NOTIFY_SOCKET", "LISTEN_*", "INVOCATION_ID", "JOURNAL_STREAM", "MANAGERPID", "WATCHDOG_*",
	"PULSE_*", "PIPEWIRE_*", "BROWSER", "HOME", "PWD", "OLDPWD", "_", "SHLVL",
}

// environment is what programs on the desktop see: the base, without what is
// foreign, and our own. Ours wins.
func environment(o Options) []string {
	base := keep(o.Env, func(name string) bool { return !isForeign(name) })
	if o.Opener != nil {
		base = append(base, "BROWSER="+o.Opener.Command)
	}
	base = withDefault(base, "PATH", defaultPath)
	base = withDefault(base, "LANG", "C.UTF-8")
	return append(base,
		"HOME="+o.Home,
		"DISPLAY="+fmt.Sprintf(":%d", o.Display),
		"XAUTHORITY="+o.xauthority(),
		"DBUS_SESSION_BUS_ADDRESS="+busAddress(o.busSocket()),
		"XDG_RUNTIME_DIR="+o.RuntimeDir,
		"XDG_CONFIG_HOME="+o.ConfigHome,
		"XDG_DATA_HOME="+filepath.Join(o.Home, ".local/share"),
		"XDG_STATE_HOME="+filepath.Join(o.Home, ".local/state"),
		"XDG_CACHE_HOME="+filepath.Join(o.Home, ".cache"),
		"XDG_CONFIG_DIRS="+o.ownFirst(openerConfig, systemConfigDirs),
		"XDG_DATA_DIRS="+o.ownFirst(openerData, systemDataDirs),
		"XDG_CURRENT_DESKTOP=XFCE",
		"XDG_SESSION_DESKTOP=xfce",
		"XDG_SESSION_TYPE=x11",
		"XDG_MENU_PREFIX=xfce-",
		"DESKTOP_SESSION=xfce",
		"GDK_BACKEND=x11",
		"QT_QPA_PLATFORM=xcb",
		// No accessibility bus, no virtual file systems and no dconf service:
		// together three to five processes less on every desktop.
		"NO_AT_BRIDGE=1",
		"GTK_A11Y=none",
		"GIO_USE_VFS=local",
		"GSETTINGS_BACKEND=keyfile",
		// The panel must not ask which layout to begin with.
		"XFCE_PANEL_MIGRATE_DEFAULT=1",
	)
}

// serverEnvironment is for Xvnc, the bus and xfconfd. They run while rfb.sock
// may still be reached by its path, so nothing that a person or a job chose
// (a library to preload, a module path) gets into them.
func serverEnvironment(o Options) []string {
	names := []string{
		"PATH", "LANG", "HOME", "USER", "LOGNAME", "TZ", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS",
		"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS",
		"GIO_USE_VFS", "GSETTINGS_BACKEND",
	}
	o.Opener = nil // its files are the desktop's to change
	return keep(environment(o), func(name string) bool { return slices.Contains(names, name) })
}

// keep returns the well-formed entries whose name is wanted.
func keep(env []string, wanted func(name string) bool) []string {
	var kept []string
	for _, entry := range env {
		name, _, found := strings.Cut(entry, "=")
		if found && name != "" && !strings.ContainsRune(entry, 0) && wanted(name) {
			kept = append(kept, entry)
		}
	}
	return kept
}

func isForeign(name string) bool {
	return slices.ContainsFunc(foreign, func(pattern string) bool {
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, prefix)
		}
		return name == pattern
	})
}

func withDefault(env []string, name, value string) []string {
	if slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") }) {
		return env
	}
	return append(env, name+"="+value)
}

// busAddress is the D-Bus address of a socket path. Bytes outside the optional
// set are escaped (D-Bus specification, "Server Addresses"), so a path with a
// space, comma or quote works (rule S13).
func busAddress(path string) string {
	var b strings.Builder
	b.WriteString("unix:path=")
	for _, c := range []byte(path) {
		if isAlnum(c) || strings.IndexByte("-_/.\\*", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
