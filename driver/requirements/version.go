// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/botscreen/botscreen/driver/browser"
)

// UntrustedError says that root may not run a program because somebody else could have changed it (X22).
type UntrustedError struct {
	Program, Place, Why string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s is not run by root: %s %s", e.Program, e.Place, e.Why)
}

// Trusted resolves the program at path, an absolute one, to a path without links, and checks that only root can
// change it: the file and every directory on the way, those that links lead through included, belong to root and
// nobody else may write to them. The resolved path is the one to run.
func Trusted(path string) (resolved string, err error) {
	if !filepath.IsAbs(path) {
		return "", &UntrustedError{Program: path, Place: path, Why: "is not an absolute path"}
	}
	links := 0
	return trusted(path, path, &links)
}

// maxLinks is the kernel's own limit on the way to one file (path_resolution(7)).
const maxLinks = 40

// trusted walks path from the top, component by component, and starts again where it meets a link.
func trusted(program, path string, links *int) (string, error) {
	path = filepath.Clean(path)
	parts := strings.Split(path[1:], "/")
	current := "/"
	for i := -1; i < len(parts); i++ {
		if i >= 0 {
			current = filepath.Join(current, parts[i])
		}
		info, err := os.Lstat(current)
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", program, err)
		}
		if info.Mode().Type() == fs.ModeSymlink {
			// Who owns a link does not matter: only who may write to its directory can replace it, and that was checked.
			target, err := os.Readlink(current)
			if *links++; err == nil && *links > maxLinks {
				err = syscall.ELOOP
			}
			if err != nil {
				return "", fmt.Errorf("look at %s: %w", program, err)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(current), target)
			}
			return trusted(program, filepath.Join(append([]string{target}, parts[i+1:]...)...), links)
		}
		if why := changeable(info); why != "" {
			return "", &UntrustedError{Program: program, Place: current, Why: why}
		}
		if last := i == len(parts)-1; last && !info.Mode().IsRegular() {
			return "", &UntrustedError{Program: program, Place: current, Why: "is not a regular file"}
		}
	}
	return path, nil
}

func changeable(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "has no owner"
	case stat.Uid != 0:
		return fmt.Sprintf("belongs to uid %d", stat.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("can be written to by others than root (mode %04o)", info.Mode().Perm())
	}
	return ""
}

const (
	// versionTime is generous: on a node where many desktops start a program may take
	// seconds to say its version, and a driver that gives it up is unhealthy for as long as
	// until the next look. It is less than a look may take (fingerprint.checkLimit).
	versionTime   = 8 * time.Second
	versionOutput = 4 << 10
	// nobody is the uid and gid that programs are asked as when we are root.
	nobody = 65534
)

// errNoAnswer says that a program took too long to say its version, as on a busy node.
var errNoAnswer = fmt.Errorf("no answer within %s", versionTime)

// Ask runs the program at path with args, as asking for its version does, and returns at most 4 KiB of what it
// says. It has eight seconds, a constant environment and, when we are root, the uid nobody; a program that others
// than root could have changed is not run at all.
func Ask(ctx context.Context, path string, args ...string) (string, error) {
	resolved, err := Trusted(path)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, versionTime, errNoAnswer)
	defer cancel()
	// What was checked is run, by the name that was asked for.
	cmd := exec.CommandContext(ctx, resolved, args...)
	cmd.Args[0] = path
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + Path, "LANG=C.UTF-8", "HOME=/nonexistent"}
	// A wrapper script's children go with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 200 * time.Millisecond
	out := &limited{room: versionOutput}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil && len(out.text) == 0 {
		return "", fmt.Errorf("ask %s: %w", path, err)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("ask %s: %w", path, err)
	}
	// Xvnc ends with 1 after -version; what it said is what counts.
	return string(out.text), nil
}

// limited keeps the beginning of what is written to it and drops the rest.
type limited struct {
	text []byte
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	take := min(len(p), l.room)
	l.text = append(l.text, p[:take]...)
	l.room -= take
	return len(p), nil
}

// XServer is what an Xvnc says of itself.
type XServer struct {
	// Vendor is TigerVNC, KasmVNC, TurboVNC…
	Vendor string
	// Version is its dotted number.
	Version string
}

// xvncLine is the line of Xvnc -version, such as "Xvnc TigerVNC 1.12.0 - built 2023-01-06 16:01".
var xvncLine = regexp.MustCompile(`(?m)^Xvnc ([A-Za-z]{1,32}) ([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})\b`)

// ParseXvnc finds vendor and version in what Xvnc -version prints.
func ParseXvnc(output string) (XServer, error) {
	m := xvncLine.FindStringSubmatch(output)
	if m == nil {
		return XServer{}, fmt.Errorf("read Xvnc's version: %q is not what Xvnc says", plain(output, 80))
	}
	return XServer{Vendor: m[1], Version: m[2]}, nil
}

// Supported is nil for a server that speaks plain RFB on a Unix socket, which TigerVNC does; others have left
// that out or speak dialects (RFB-18).
func (x XServer) Supported() error {
	if x.Vendor != "TigerVNC" {
		return fmt.Errorf("Xvnc is %s %s; only TigerVNC is supported", x.Vendor, x.Version)
	}
	return nil
}

// Xvnc asks this host's Xvnc for its version.
func (h Host) Xvnc(ctx context.Context) (XServer, error) {
	path := h.Find("Xvnc")
	if path == "" {
		return XServer{}, fmt.Errorf("ask Xvnc: %w", exec.ErrNotFound)
	}
	output, err := Ask(ctx, path, "-version")
	if err != nil {
		return XServer{}, err
	}
	return ParseXvnc(output)
}

var browserLine = regexp.MustCompile(`(?m)^(Google Chrome|Chromium|Microsoft Edge|Brave Browser)[A-Za-z ]{0,20} ([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})\b`)

// ParseBrowser finds name and version in what a browser's --version prints, as "chromium/128.0.6613.84". A
// headless shell is none: it cannot show a window.
func ParseBrowser(output string) (string, error) {
	m := browserLine.FindStringSubmatch(output)
	if m == nil || strings.Contains(strings.ToLower(output), "headless") {
		return "", fmt.Errorf("read the browser's version: %q is not what a browser says", plain(output, 80))
	}
	return strings.ReplaceAll(strings.ToLower(m[1]), " ", "-") + "/" + m[2], nil
}

// Browser is a browser of the system.
type Browser struct {
	Name string // and version, as in "chromium/128.0.6613.84"
	Path string // as it was found
}

// NoBrowser is the name where there is none.
const NoBrowser = "none"

// Browser is the first browser of the system that answers, or one named [NoBrowser]. They are looked for in the
// order in which a screen looks. The error says why those that are installed did not do.
func (h Host) Browser(ctx context.Context) (Browser, error) {
	var faults []error
	for _, name := range browser.SystemNames {
		path := h.Find(name)
		if path == "" {
			continue
		}
		output, err := h.Versions.Ask(path, func() (string, error) { return Ask(ctx, path, "--version") })
		if err == nil {
			output, err = ParseBrowser(output)
		}
		if err == nil {
			return Browser{Name: output, Path: path}, nil
		}
		faults = append(faults, err)
	}
	return Browser{Name: NoBrowser}, errors.Join(faults...)
}
