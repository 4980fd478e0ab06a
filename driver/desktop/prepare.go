// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// PrepareProcess makes this process fit to be the parent of a desktop. It is
// the first thing a session does:
//
//   - orphans below it become its children (PR_SET_CHILD_SUBREAPER), so nothing
//     that daemonises gets away;
//   - it is not dumpable, so programs of its own uid can neither trace it nor
//     take descriptors from it (rule X2);
//   - every descriptor above stderr is closed on exec, whoever left it open;
//   - signals it was started with as ignored get their default back in its
//     children (rule S8a): a Go program cannot un-ignore a signal for an exec
//     otherwise than by handling it.
func PrepareProcess() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become sub-reaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become non-dumpable: %w", err)
	}
	if err := closeOnExec(); err != nil {
		return fmt.Errorf("close descriptors on exec: %w", err)
	}
	return handleIgnoredSignals()
}

// closeOnExec marks every descriptor above stderr. Those that children are to
// have are passed by number at each start and are not affected.
func closeOnExec() error {
	const first = 3
	err := unix.CloseRange(first, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC) // up to the largest int32
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// handleIgnoredSignals installs a handler for each signal that is ignored now.
// exec resets handled signals to their default and leaves ignored ones ignored.
func handleIgnoredSignals() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read signal dispositions: %w", err)
	}
	ignored, err := ignoredSignals(status)
	if err != nil || len(ignored) == 0 {
		return err
	}
	sink := make(chan os.Signal, 1) // full is fine: nobody reads it
	signal.Notify(sink, ignored...)
	return nil
}

// ignoredSignals reads the SigIgn line of proc_pid_status(5): a mask in which
// bit n-1 stands for signal n.
func ignoredSignals(status []byte) ([]os.Signal, error) {
	_, rest, found := bytes.Cut(status, []byte("\nSigIgn:"))
	if !found {
		return nil, errors.New("read signal dispositions: no SigIgn line")
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	if err != nil {
		return nil, fmt.Errorf("read signal dispositions: %w", err)
	}
	var ignored []os.Signal
	for n := 1; n <= 64; n++ {
		if mask&(1<<(n-1)) != 0 {
			ignored = append(ignored, syscall.Signal(n))
		}
	}
	return ignored, nil
}
