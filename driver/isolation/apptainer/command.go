// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"encoding/csv"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/botscreen/botscreen/driver/isolation"
)

// view names what lies in the scratch directory of a launch. As root it is a file system
// of the launch's own mount namespace, so nothing of it is ever on the node.
type view struct{ dir string }

func (v view) image() string   { return filepath.Join(v.dir, imageName) }
func (v view) config() string  { return filepath.Join(v.dir, "config") }
func (v view) seccomp() string { return filepath.Join(v.dir, seccompName) }
func (v view) node() string    { return filepath.Join(v.dir, "node") }
func (v view) tmp() string     { return filepath.Join(v.dir, "tmp") }
func (v view) shm() string     { return filepath.Join(v.dir, "shm") }

func (view) volume(i int) string { return "volume-" + strconv.Itoa(i) }

const (
	imageName   = "image"
	seccompName = "seccomp.json"
)

// command is apptainer with the session behind it. exec with a pid namespace is half as
// expensive as an instance and leaves no record that could lie (APT-06).
func command(program string, order isolation.Order, image string) *exec.Cmd {
	v := view{order.Scratch}
	args := []string{
		"--silent", "exec",
		// P9, X7: whoever it runs as, nothing of the node but what is bound below.
		"--userns", "--pid", "--ipc", "--containall", "--no-home", "--no-privs",
		"--no-mount", "hostfs,bind-paths,home,tmp,cwd",
		// The session is the first process of its pid namespace: with it all others end.
		// X23: an apptainer that was built without it says so and goes on, see admit.
		"--security", listed("seccomp:" + v.seccomp()),
		"--no-init", "--no-umask", "--no-eval",
		"--hostname", "screen-" + order.ID.Hash(),
		"--pwd", "/",
	}
	if order.Writable {
		args = append(args, "--writable-tmpfs")
	}
	for _, b := range binds(order, v) {
		args = append(args, "--mount", b.String())
	}
	// S13: a path that looks like an option or like a URI is neither behind "./" or "/".
	args = append(args, image, order.Binary, "session", "--dial", order.DialDir+"/s")
	cmd := exec.Command(program, args...)
	cmd.Env = engineEnvironment(v.config())
	cmd.Dir = "/"
	cmd.Stdout = order.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !order.Account.Inherited {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: order.Account.UID, Gid: order.Account.GID}
	}
	return cmd
}

// engineEnvironment is all that apptainer sees: nothing of the node and nothing of the
// job, whose APPTAINER_BIND would defeat --containall (X8, P8). Its folders are pinned,
// so neither HOME nor the caller decides where it looks (APT-05).
func engineEnvironment(config string) []string {
	return []string{
		"PATH=" + enginePath, "LANG=C.UTF-8", "HOME=" + config,
		"APPTAINER_CONFIGDIR=" + config, "APPTAINER_CACHEDIR=" + config + "/cache", "APPTAINER_TMPDIR=" + config,
	}
}

// listed is one entry of an option that takes a list: CSV, so any path can be said (S13).
func listed(fields ...string) string {
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(fields) // a Builder takes everything
	w.Flush()
	return strings.TrimSuffix(text.String(), "\n")
}

// bindMount is one thing of the node that is seen inside.
type bindMount struct {
	source, target string
	readOnly       bool
}

// String is apptainer's --mount form: CSV, so any path can be said (S13).
func (b bindMount) String() string {
	fields := []string{"type=bind", "source=" + b.source, "destination=" + b.target}
	if b.readOnly {
		fields = append(fields, "ro")
	}
	return listed(fields...)
}

// binds are everything of the node that is seen inside.
func binds(order isolation.Order, v view) []bindMount {
	all := []bindMount{
		{order.Binary, order.Binary, true},
		{order.DialDir, order.DialDir, true},
		{order.XDir, order.XDir, false},
		{order.Home, order.Home, false},
		{v.tmp(), "/tmp", false},
		{v.tmp(), "/var/tmp", false},
		{v.shm(), "/dev/shm", false},
	}
	for _, file := range isolation.AccountFiles(order) {
		all = append(all, bindMount{filepath.Join(v.dir, file.Name), file.Target, true})
	}
	for i, volume := range order.Volumes {
		all = append(all, bindMount{filepath.Join(v.dir, v.volume(i)), volume.Target, volume.ReadOnly})
	}
	return all
}
