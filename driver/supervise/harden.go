// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"errors"
	"fmt"
	"runtime/debug"
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
// sandboxes and viewers send, so it must not be worth taking over.
func harden() error {
	if unix.Geteuid() == 0 {
		return errors.New("harden: a supervisor does not run as uid 0")
	}
	// no_new_privs belongs to a thread; the runtime has several by now.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("harden: no_new_privs: %w", errno)
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
