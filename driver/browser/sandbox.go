// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/userns"
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
	if s, off := userns.Off(""); off {
		return errors.New(s.String())
	}
	return errors.New("user namespaces are refused")
}

// namespacesFix is what an administrator of the node types.
func namespacesFix() string {
	if s, off := userns.Off(""); off {
		return s.Fix
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
