// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"errors"
	"fmt"
	"runtime/debug"

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
	// It belongs to a thread, and the runtime has several by now: the launcher sets it.
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.New("harden: started without no_new_privs")
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
