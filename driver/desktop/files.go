// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// Names below XDir.
const (
	fileAuthority = "Xauthority"
	fileEnv       = "env"     // what a program needs to reach this desktop, KEY=VALUE lines
	fileDisplay   = "display" // ":20"
	fileBus       = "bus"
	fileRFB       = "rfb.sock"
)

// publishedNames are the variables that lead another program to this desktop.
var publishedNames = []string{"DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"}

// place is a desktop's XDir, held for as long as the desktop lives: two
// desktops in one place would steal each other's sockets (DSP-08).
type place struct {
	dir  *os.Root
	lock *os.File // the directory itself, flocked
}

func holdPlace(o Options) (*place, error) {
	lock, err := os.OpenFile(o.XDir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("start desktop: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{What: fmt.Sprintf("%q", o.XDir)}
		}
		return nil, fmt.Errorf("start desktop: lock %s: %w", o.XDir, err)
	}
	dir, err := os.OpenRoot(o.XDir)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("start desktop: %w", err)
	}
	return &place{dir: dir, lock: lock}, nil
}

// preparePlace makes the directories, holds XDir and empties it.
func preparePlace(o Options) (*place, error) {
	if err := ensureDirs(o); err != nil {
		return nil, err
	}
	p, err := holdPlace(o)
	if err != nil {
		return nil, err
	}
	if err := p.clear(); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// clear removes what an earlier desktop left in the place.
func (p *place) clear() error {
	var failed []error
	for _, name := range []string{fileEnv, fileDisplay, fileAuthority, fileUntrusted, fileBus, fileRFB} {
		if err := p.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("clear %s: %w", p.dir.Name(), err)
	}
	return nil
}

// authorize writes the cookie for clients and server (rule S2).
func (p *place) authorize(n display.Number, cookie display.Cookie) error {
	host, err := os.Hostname()
	if err != nil {
		host = "" // the entry that matches any host is enough
	}
	return display.WriteAuthority(p.dir, fileAuthority, display.CookieEntries(n, host, cookie),
		display.Owner{UID: os.Geteuid(), GID: os.Getegid()})
}

// publish tells other programs how to reach the desktop, in one step and only
// when it is ready (rule S6).
func (p *place) publish(o Options, env []string) error {
	var text bytes.Buffer
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		for _, wanted := range publishedNames {
			if name == wanted {
				text.WriteString(entry + "\n")
			}
		}
	}
	if err := replace(p.dir, fileDisplay, fmt.Appendf(nil, ":%d\n", o.Display)); err != nil {
		return fmt.Errorf("publish desktop: %w", err)
	}
	if err := replace(p.dir, fileEnv, text.Bytes()); err != nil {
		return fmt.Errorf("publish desktop: %w", err)
	}
	return nil
}

// release removes the files and gives the place free.
func (p *place) release() error {
	return errors.Join(p.clear(), p.dir.Close(), p.lock.Close())
}

// ensureDirs makes the directories of o that may be absent and checks the
// runtime directory as its specification demands: ours, 0700, no link.
func ensureDirs(o Options) error {
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	if err := os.MkdirAll(o.RuntimeDir, 0o700); err != nil {
		return fmt.Errorf("make runtime directory: %w", err)
	}
	info, err := os.Lstat(o.RuntimeDir)
	if err != nil {
		return fmt.Errorf("check runtime directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("check runtime directory: %s is not a directory of uid %d", o.RuntimeDir, os.Geteuid())
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(o.RuntimeDir, 0o700); err != nil {
			return fmt.Errorf("check runtime directory: %w", err)
		}
	}
	return maskServices(o.RuntimeDir)
}

// masked are bus services that would lock the screen, put it to sleep or ask
// for a password (rule S3) if some program's request started them.
var masked = []string{
	"org.freedesktop.secrets", "org.gnome.keyring", "org.gnome.keyring.SystemPrompter", "org.kde.kwalletd5", "org.kde.kwalletd6",
	"org.freedesktop.ScreenSaver", "org.gnome.ScreenSaver", "org.mate.ScreenSaver", "org.xfce.ScreenSaver", "org.cinnamon.ScreenSaver",
	"org.freedesktop.PowerManagement", "org.xfce.PowerManager", "org.xfce.SessionManager",
}

// maskServices overrides them: the bus looks into XDG_RUNTIME_DIR first, see
// dbus-daemon(1), standard_session_servicedirs.
func maskServices(runtimeDir string) error {
	dir := filepath.Join(runtimeDir, "dbus-1/services")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("mask services: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("mask services: %w", err)
	}
	defer root.Close()
	for _, name := range masked {
		err := create(root, name+".service", []byte("[D-BUS Service]\nName="+name+"\nExec=/bin/false\n"))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mask services: %w", err)
		}
	}
	return nil
}
