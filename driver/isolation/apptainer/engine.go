// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/userns"
)

// enginePath is the PATH of apptainer and of what it starts; the node's own does not
// matter (X8).
const enginePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// oldest is the first version with all options that a launch uses.
var oldest = [2]int{1, 2}

// askLimit bounds the question for a version; it reads no image.
const askLimit = 10 * time.Second

// Health is what can be said of apptainer on this node.
type Health struct {
	Ready   bool
	Reason  string // why it is not ready, and what would change that
	Version string
}

// engineVersion is what a program said of itself, as long as it is the same file.
type engineVersion struct {
	file fileKey
	text string
}

// Check looks at apptainer now. It ends with ctx.
func (b *Boundary) Check(ctx context.Context) Health {
	path, err := b.program()
	if err != nil {
		return Health{Reason: err.Error()}
	}
	version, err := b.ask(ctx, path)
	if err != nil {
		return Health{Reason: fmt.Sprintf("%s does not say its version: %v. Install apptainer anew", path, err)}
	}
	if major, minor, ok := parseVersion(version); !ok || major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return Health{Version: version, Reason: fmt.Sprintf("apptainer is version %s; %d.%d or newer is needed", version, oldest[0], oldest[1])}
	}
	if reason := namespacesOff(); reason != "" {
		return Health{Version: version, Reason: reason}
	}
	return Health{Ready: true, Version: version}
}

// program finds apptainer. What root could be made to run must be root's alone (X22).
func (b *Boundary) program() (string, error) {
	path := b.options.Path
	if path == "" {
		if path = lookUp("apptainer"); path == "" {
			return "", errors.New("apptainer is not installed on this node. Install it, or name its program with `apptainer { path }` in the plugin's config")
		}
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("apptainer is not at %s (%w). Correct `apptainer { path }` in the plugin's config", path, cause(err))
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("apptainer is not at %s (%w). Correct `apptainer { path }` in the plugin's config", path, cause(err))
	}
	switch stat, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return "", fmt.Errorf("%s is not a program. Correct `apptainer { path }` in the plugin's config", path)
	case os.Geteuid() == 0 && (!ok || stat.Uid != 0 || info.Mode().Perm()&0o022 != 0):
		return "", fmt.Errorf("%s can be changed by others than root. Make it root's, with mode 0755", path)
	}
	return path, nil
}

func lookUp(name string) string {
	for _, dir := range filepath.SplitList(enginePath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// cause is an error without the path that stands beside it already.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// ask runs `apptainer --version`, once for each file it meets at path.
func (b *Boundary) ask(ctx context.Context, path string) (string, error) {
	key, err := keyOf(path)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	known := b.version
	b.mu.Unlock()
	if known.file == key {
		return known.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env, cmd.Dir = []string{"PATH=" + enginePath, "LANG=C.UTF-8"}, "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "", fmt.Errorf("%w: %s", err, plain(string(exit.Stderr)))
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(strings.TrimPrefix(string(bytes.TrimSpace(out)), "apptainer version"))
	b.mu.Lock()
	b.version = engineVersion{key, text}
	b.mu.Unlock()
	return text, nil
}

// nobody is the uid of processes that need none.
const nobody = 65534

// parseVersion reads "1.3.4-2.el9"; a program of another name has another form.
func parseVersion(text string) (major, minor int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, errA := strconv.Atoi(parts[0])
	digits := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(parts[1])
	}
	minor, errB := strconv.Atoi(parts[1][:digits])
	return major, minor, errA == nil && errB == nil
}

// namespacesOff says why nobody may make user namespaces here, if the kernel says so.
// AppArmor's switch is none of them: apptainer's packages bring a profile.
func namespacesOff() string {
	if s, off := userns.Off(""); off && !s.AppArmor {
		return fmt.Sprintf("this kernel gives no user namespaces to users without privilege (%s), which apptainer needs. Run `%s`", s, s.Fix)
	}
	if !userns.Exist("") {
		return "this kernel has no user namespaces, which apptainer needs. Boot one with CONFIG_USER_NS"
	}
	return ""
}

// fuseOff says why image files cannot be mounted: apptainer without privilege does that
// by FUSE, as the screen's uid.
func fuseOff() string {
	info, err := os.Stat("/dev/fuse")
	switch {
	case err != nil:
		return "this node has no /dev/fuse, by which apptainer mounts image files. Run `modprobe fuse`, or use a sandbox directory as the image"
	case info.Mode().Perm()&0o006 != 0o006:
		return fmt.Sprintf("/dev/fuse has mode %04o, so that apptainer cannot mount an image file as the screen's user. Run `chmod 0666 /dev/fuse`, or use a sandbox directory as the image", info.Mode().Perm())
	}
	return ""
}

// check refuses what this isolation cannot give; nothing weaker is given instead (P1, P9).
func check(order isolation.Order) error {
	switch {
	case order.Account.UID == 0 || order.Account.GID == 0:
		return &RefusedError{Reason: "apptainer never runs a screen as root: its root would be the node's. Name a user with `user` in the task, or run the plugin as root without one, which gives every screen a uid of its own"}
	case order.Account.Inherited && len(order.Volumes) > 0:
		return &RefusedError{Reason: "binds need a driver that runs as root: without privilege it cannot hold a directory while apptainer looks for it. Leave `binds` out, or run the plugin as root"}
	case len(order.Account.Groups) > 0:
		return &RefusedError{Reason: "apptainer gives a screen no supplementary groups: a user namespace has none of them. Leave the user out of `allowed_groups`, or use another isolation"}
	}
	return nil
}
