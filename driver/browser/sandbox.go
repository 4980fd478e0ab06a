// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SandboxError says that the browser's own sandbox cannot work here, and how it would
// (BRW-11, X23).
type SandboxError struct{ Executable, Reason string }

func (e *SandboxError) Error() string {
	return fmt.Sprintf("%s has no usable sandbox here (%s). Fix: %s; or write sandbox = false into the job's browser block",
		e.Executable, e.Reason, namespacesFix())
}

// Environment of the session's own binary when it is run as the probe; it then does
// nothing but end well.
const ProbeCommand = "browser-namespace-probe"

// tryNamespaces makes the namespaces that Chromium's sandbox makes, for a copy of ourselves
// that ends at once. Reading the switches of the kernel would not see a seccomp filter or
// a security module.
func tryNamespaces(starter Starter) error {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"nomad-driver-botscreen", ProbeCommand}, Dir: "/", Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET},
	}
	err := starter.Start(cmd)
	if err == nil {
		err = starter.Wait(cmd)
	}
	if err == nil {
		return nil
	}
	for _, s := range namespaceSwitches {
		if s.isOff() {
			return fmt.Errorf("%s is %s", strings.ReplaceAll(strings.TrimPrefix(s.file, "/proc/sys/"), "/", "."), s.off)
		}
	}
	return errors.New("user namespaces are refused")
}

// namespaceSwitches turn unprivileged user namespaces off, see user_namespaces(7) and
// Debian's and Ubuntu's kernels.
var namespaceSwitches = []namespaceSwitch{
	{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
	{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns` for the browser",
	},
}

type namespaceSwitch struct{ file, off, fix string }

func (s namespaceSwitch) isOff() bool {
	text, err := os.ReadFile(s.file)
	return err == nil && strings.TrimSpace(string(text)) == s.off
}

// namespacesFix is what an administrator of the node types.
func namespacesFix() string {
	for _, s := range namespaceSwitches {
		if s.isOff() {
			return s.fix
		}
	}
	return "allow clone, unshare and setns in the seccomp profile around the screen"
}

// hasHelper reports whether the browser has a set-user-ID helper that could confine it: the
// file belongs to root, and neither no_new_privs nor the mount takes its privilege away.
func hasHelper(executable string) bool {
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 0 {
		return false
	}
	resolved, err := filepath.EvalSymlinks(executable)
	if err != nil {
		return false
	}
	dirs := []string{filepath.Dir(resolved), filepath.Join("/usr/lib", filepath.Base(resolved)), filepath.Join("/usr/lib64", filepath.Base(resolved))}
	for _, dir := range dirs {
		if isHelper(filepath.Join(dir, "chrome-sandbox")) || isHelper(filepath.Join(dir, "chrome_sandbox")) {
			return true
		}
	}
	return false
}

func isHelper(path string) bool {
	var stat unix.Stat_t
	var fs unix.Statfs_t
	return unix.Stat(path, &stat) == nil && unix.Statfs(path, &fs) == nil &&
		stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Uid == 0 && stat.Mode&unix.S_ISUID != 0 && stat.Mode&0o001 != 0 &&
		fs.Flags&unix.ST_NOSUID == 0
}
