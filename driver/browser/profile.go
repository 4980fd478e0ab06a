// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// profile is a browser's profile folder, held for as long as its browser lives.
type profile struct {
	dir  string
	lock *os.File // an flock, which ends with us
}

// lockFile is our own record in a profile folder that a browser of ours uses it.
const lockFile = "botscreen.lock"

// errInUse says who has a profile.
var errInUse = errors.New("it is in use, by a browser of another session or by an export or import")

// openProfile makes the folder if it is absent and holds it, which no two sessions do at
// once, whatever pids and host names they see. The folder must be one that the browser
// lets itself be driven in.
func openProfile(dir string, env []string) (*profile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the browser's profile: %w", err)
	}
	if err := checkFolder(dir, env); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hold the browser's profile: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("hold the browser's profile %s: %w", dir, errInUse)
		}
		return nil, fmt.Errorf("hold the browser's profile: %w", err)
	}
	return &profile{dir: dir, lock: lock}, nil
}

func (p *profile) release() { _ = p.lock.Close() }

// defaultFolders are the profile folders of browsers that are started without one, below
// XDG_CONFIG_HOME. Since version 136 Chrome ignores every debugging switch in them.
var defaultFolders = []string{"chromium", "google-chrome", "google-chrome-beta", "google-chrome-unstable", "google-chrome-for-testing"}

// DefaultProfileError says that the folder is the one of a browser that nobody drives
// (BRW-05).
type DefaultProfileError struct{ Dir, Is string }

func (e *DefaultProfileError) Error() string {
	return fmt.Sprintf("the browser's profile %s is the default profile folder %s, in which Chrome lets nobody debug it. Make %s a folder of its own", e.Dir, e.Is, e.Dir)
}

// checkFolder refuses a default folder, also behind a link, and one that is not ours.
func checkFolder(dir string, env []string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the browser's profile: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the browser's profile %s does not belong to uid %d", dir, os.Geteuid())
	}
	config := variable(env, "XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(variable(env, "HOME"), ".config")
	}
	for _, name := range defaultFolders {
		folder := filepath.Join(config, name)
		if other, err := os.Stat(folder); err == nil && os.SameFile(info, other) {
			return &DefaultProfileError{Dir: dir, Is: folder}
		}
	}
	return nil
}

// inMemory reports whether the folder ends with the node (rule W6).
func inMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

// leftovers are what a browser that ended badly leaves in its profile: who has it, and
// where it listened. The first is a link to HOST-PID, see
// chrome/browser/process_singleton_posix.cc.
var leftovers = []string{"SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort"}

// clear removes what an earlier browser left, after nobody was found who has the profile:
// host names change and pids come again, so the lock itself proves nothing (rule W2).
func (p *profile) clear() error {
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return fmt.Errorf("clear the browser's profile: %w", err)
	}
	defer root.Close()
	for _, name := range leftovers {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the browser's profile: %w", err)
		}
	}
	return nil
}

// user is the pid of a browser of our uid that has this profile, 0 where there is none: a
// process that was started with the folder and is not one of a browser's own helpers.
func (p *profile) user() int {
	info, err := os.Stat(p.dir)
	if err != nil {
		return 0
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && isOurs(e) && usesFolder(pid, info) {
			return pid
		}
	}
	return 0
}

func isOurs(entry fs.DirEntry) bool {
	info, err := entry.Info()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func usesFolder(pid int, folder fs.FileInfo) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // it has ended
	}
	args := processArgs(text)
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--type=") }) {
		return false
	}
	for _, arg := range args {
		dir, ok := strings.CutPrefix(arg, "--user-data-dir=")
		if !ok {
			continue
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(fmt.Sprintf("/proc/%d/cwd", pid), dir)
		}
		if info, err := os.Stat(dir); err == nil && os.SameFile(info, folder) {
			return true
		}
	}
	return false
}

// processArgs are the arguments of a process as /proc has them. A program that renamed
// itself, as browsers do with their helpers, has them in one piece, separated by spaces.
func processArgs(cmdline []byte) []string {
	text := string(bytes.TrimRight(cmdline, "\x00"))
	if strings.Contains(text, "\x00") {
		return strings.Split(text, "\x00")
	}
	return strings.Split(text, " ")
}
