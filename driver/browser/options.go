// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// Options say which browser a screen has and what it runs on.
type Options struct {
	Executable string // the job's choice; empty: one is looked for
	Args       []string
	Sandbox    bool   // the browser's own; false is the job's choice alone
	StartURL   string // for whoever asks for no address; empty: a new tab
	Profile    string // the profile folder, absolute
	Downloads  string // made if it is absent
	Scratch    string // a folder of the screen's uid alone that ends with the screen
	Env        []string
	Known      []screen.KnownVersion // what the node's executables have said, which need not be asked again

	// Starter starts small programs, Launch the browser on the desktop.
	Starter Starter
	Launch  func(path string, args, env []string, files ...*os.File) (Process, error)
	// Changed, when set, is called after each change of State, from any goroutine.
	Changed func(State)
}

// Starter starts programs whose exit status belongs to the caller, as desktop.Reaper does.
type Starter interface {
	Start(*exec.Cmd) error
	Wait(*exec.Cmd) error
}

// Process is the browser that was started. Its pid is the browser's own.
type Process interface {
	PID() int
	Done() <-chan struct{} // closed when it has ended
	Status() string        // how it ended, in words
	ExitCode() int         // 128 + the signal that ended it
	LastLines() []string   // of its output; untrusted, cleaned of control characters
	Signal(os.Signal) error
}

const (
	// diskCacheBytes bounds the cache of pages in the profile folder.
	diskCacheBytes = 100 << 20
	// smallShmBytes is less than a browser with a few tabs puts into /dev/shm.
	smallShmBytes = 256 << 20
)

// arguments are the browser's. Ours come last: where a switch is given twice Chromium takes
// the last one.
func arguments(o Options, confined Confinement) []string {
	args := append([]string(nil), o.Args...)
	args = append(args,
		"--user-data-dir="+o.Profile,
		"--remote-debugging-pipe", // descriptors 3 and 4; no port exists (X17)
		"--no-first-run",
		"--no-default-browser-check",
		"--hide-crash-restore-bubble",
		"--disk-cache-size="+strconv.Itoa(diskCacheBytes),
		"--password-store=basic", // the desktop has no keyring that could ask (rule S3)
		"--ozone-platform=x11",
	)
	if shmBytes() < smallShmBytes {
		args = append(args, "--disable-dev-shm-usage")
	}
	if confined == Off {
		args = append(args, "--no-sandbox")
	}
	return args
}

// shmBytes is the size of /dev/shm, 0 where it is none to speak of.
func shmBytes() uint64 {
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return fs.Blocks * uint64(fs.Bsize)
}

// environment is the desktop's without what would add switches to the browser's behind the
// driver's back (X17): wrappers of distributions read them.
func environment(env []string) []string {
	drop := map[string]bool{"CHROMIUM_FLAGS": true, "CHROMIUM_USER_FLAGS": true, "CHROME_WRAPPER": true, "CHROME_DEVEL_SANDBOX": true}
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if !drop[name] {
			kept = append(kept, entry)
		}
	}
	return kept
}

// Folder is where the browser of a profile with this home keeps its own.
func Folder(home string) string { return filepath.Join(home, "browser") }
