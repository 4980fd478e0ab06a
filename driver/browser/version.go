// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/form"
)

// Version is a browser's own name and number, such as "Chromium 156.0.8078.114".
type Version struct {
	Name   string
	Number Number
}

func (v Version) String() string { return v.Name + " " + v.Number.String() }

// Number is a dotted version.
type Number []int

func (n Number) String() string {
	parts := make([]string, len(n))
	for i, part := range n {
		parts[i] = strconv.Itoa(part)
	}
	return strings.Join(parts, ".")
}

var (
	versionLine = form.Of(`(?m)^(Google Chrome(?: for Testing)?|Chromium|Microsoft Edge|Brave Browser)\b[A-Za-z ]{0,20} ([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})(?:\s|$)`)
	lastVersion = form.Of(`^[0-9]{1,6}(?:\.[0-9]{1,6}){1,3}$`)
)

// ParseVersion finds name and version in what a browser's --version prints. A headless
// shell is no browser of a screen (rule W3).
func ParseVersion(output string) (Version, error) {
	m := versionLine().FindStringSubmatch(output)
	if m == nil || strings.Contains(strings.ToLower(output), "headless") {
		return Version{}, fmt.Errorf("it says %q, which no headed browser does", firstLine(output))
	}
	return Version{Name: m[1], Number: parseNumber(m[2])}, nil
}

// parseNumber needs digits and dots.
func parseNumber(text string) Number {
	var n Number
	for part := range strings.SplitSeq(text, ".") {
		value, _ := strconv.Atoi(part) // at most six digits
		n = append(n, value)
	}
	return n
}

func firstLine(text string) string {
	const most = 80
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(line[:min(len(line), most)], "")
}

const (
	// versionTime and versionOutput bound what asking for a version costs (X22).
	versionTime   = 2 * time.Second
	versionOutput = 4 << 10
	// versionTries is how often a busy node is asked again.
	versionTries = 3
)

// askVersion runs the executable, which the job may have named, as ourselves: the
// desktop's uid (X22).
func askVersion(ctx context.Context, starter Starter, path string) (Version, error) {
	for try := 1; ; try++ {
		output, err := outputOf(ctx, starter, path)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && try < versionTries {
			continue
		}
		if err == nil {
			var v Version
			if v, err = ParseVersion(output); err == nil {
				return v, nil
			}
		}
		return Version{}, fmt.Errorf("%s does not tell its version: %w", path, err)
	}
}

// outputOf is the beginning of what `path --version` prints.
func outputOf(ctx context.Context, starter Starter, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd := &exec.Cmd{
		Path: path, Args: []string{path, "--version"}, Dir: "/", Stdout: w,
		Env:         []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent"},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = starter.Start(cmd)
	_ = w.Close()
	if err != nil {
		return "", err
	}
	// A wrapper's children go with it.
	stop := context.AfterFunc(ctx, func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = r.SetReadDeadline(time.Unix(1, 0)) // a child in another group may hold the pipe
	})
	text, readErr := io.ReadAll(io.LimitReader(r, versionOutput))
	_ = r.Close() // one that has more to say gets SIGPIPE
	err = starter.Wait(cmd)
	if !stop() {
		return "", context.Cause(ctx)
	}
	if len(text) > 0 {
		return string(text), nil // what it said is what counts
	}
	return "", errors.Join(readErr, err)
}

// lastVersionFile is where Chromium writes the version that used a profile last, see
// chrome/browser/downgrade/user_data_downgrade.cc.
const lastVersionFile = "Last Version"

// OlderError says that the browser is older than the profile's last one, which it would
// crash on or corrupt (rule W4).
type OlderError struct{ Has, Needs Number }

func (e *OlderError) Error() string {
	return fmt.Sprintf("the profile was last used by version %s, and this browser is %s: an older one would damage it. Use version %s or newer, or another profile",
		e.Needs, e.Has, e.Needs)
}

// checkVersion refuses a browser that is older than the profile.
func checkVersion(profile string, has Number) error {
	f, err := os.Open(filepath.Join(profile, lastVersionFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the profile's version: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return fmt.Errorf("read the profile's version: %w", err)
	}
	word := strings.TrimSpace(string(text))
	if !lastVersion().MatchString(word) {
		return nil // Chromium itself reads it as none
	}
	if last := parseNumber(word); slices.Compare(has, last) < 0 {
		return &OlderError{Has: has, Needs: last}
	}
	return nil
}
