// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxOpenFiles bounds what a session can make this process hold open (X12).
	maxOpenFiles = 1024
	// memoryLimit makes the collector work before hostile input can fill the node (X31), in bytes.
	memoryLimit = 128 << 20
)

// harden gives up everything a supervisor does not need (rule X14): it parses what
// sandboxes and viewers send, so it must not be worth taking over. It may execute this
// program anew.
func harden() error {
	if unix.Getuid() == 0 || unix.Geteuid() == 0 {
		return errors.New("harden: a supervisor does not run as uid 0")
	}
	if err := forgoPrivileges(); err != nil {
		return fmt.Errorf("harden: no_new_privs: %w", err)
	}
	if err := checkCapabilities(); err != nil {
		return fmt.Errorf("harden: %w", err)
	}
	// Non-dumpable: another process of this uid can neither trace it nor read its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden: dumpable: %w", err)
	}
	for resource, limit := range map[int]uint64{unix.RLIMIT_NOFILE: maxOpenFiles, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("harden: limit %d: %w", resource, err)
		}
	}
	unix.Umask(0o077)
	debug.SetMemoryLimit(memoryLimit)
	// A relay's garbage is short-lived buffers: collecting early keeps 70 supervisors small.
	debug.SetGCPercent(50)
	return nil
}

// forgoPrivileges sets no_new_privs, which belongs to a thread, for all threads. A
// program with cgo has threads the runtime cannot reach: it sets it for one and
// executes itself from there, since all threads of the new image inherit it.
func forgoPrivileges() error {
	has, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || has == 1 {
		return err // set before the runtime began, and so for all threads
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if errno != unix.ENOTSUP {
		return nilIfZero(errno)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

func nilIfZero(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// checkCapabilities refuses to run with any capability: to drop them is the launcher's
// part, see capabilities(7).
func checkCapabilities() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapAmb"} {
		_, rest, found := bytes.Cut(status, []byte("\n"+set+":"))
		line, _, _ := strings.Cut(string(rest), "\n")
		if found && strings.Trim(line, "0 \t") != "" {
			return fmt.Errorf("a supervisor runs without capabilities, %s is %s", set, strings.TrimSpace(line))
		}
	}
	return nil
}
