// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// seal changes a child that stopped at its exec (it asked to be traced) before
// it runs its first instruction, and lets it go:
//
//   - it cannot execute programs unless the gate returned lets it;
//   - it is not dumpable, so no program of its uid can trace it or take its
//     descriptors (rule X2).
//
// exec makes every process dumpable, so neither the parent nor a wrapper could
// set that beforehand, and a preloaded library would need a file, a matching
// libc and LD_PRELOAD in the environment of the X server. Instead the child is
// made to do the system calls itself, in the place of its first one.
//
// Without a gate the child is sealed but for that, and weak says why. With err
// it may be in any state and is to be killed. seal must be called on the OS
// thread that started the child.
func seal(pid int) (gate *execGate, weak, err error) {
	if err := awaitStop(pid, unix.SIGTRAP); err != nil {
		return nil, nil, fmt.Errorf("await exec: %w", err)
	}
	// Marks the stops at system calls, so that no other stop is taken for one.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, nil, fmt.Errorf("set trace options: %w", err)
	}
	t := &tracee{pid: pid}
	if err := t.toSyscallStop(&t.entered); err != nil {
		return nil, nil, fmt.Errorf("enter first system call: %w", err)
	}
	gate, weak = t.installGate()
	defer func() {
		if err != nil && gate != nil {
			err = errors.Join(err, gate.close())
			gate = nil
		}
	}()
	var broken *brokenError
	if errors.As(weak, &broken) {
		return nil, nil, weak
	}
	// The last thing: from here on the child's memory is closed to us, too.
	if _, err := t.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0); err != nil {
		return gate, weak, fmt.Errorf("become non-dumpable: %w", err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		return gate, weak, fmt.Errorf("let go: %w", err)
	}
	return gate, weak, nil
}

// brokenError marks a failure after which the tracee cannot go on.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// tracee is a traced process that stands at the entry of a system call.
type tracee struct {
	pid     int
	entered registers
}

// call makes the tracee do another system call and stand where it stood.
func (t *tracee) call(number int, arg0, arg1, arg2 uint64) (uint64, error) {
	if err := replaceSyscall(t.pid, t.entered, uint64(number), [3]uint64{arg0, arg1, arg2}); err != nil {
		return 0, &brokenError{fmt.Errorf("replace system call: %w", err)}
	}
	var left registers
	if err := t.toSyscallStop(&left); err != nil {
		return 0, &brokenError{fmt.Errorf("leave system call: %w", err)}
	}
	if err := repeatSyscall(t.pid, t.entered); err != nil {
		return 0, &brokenError{fmt.Errorf("repeat system call: %w", err)}
	}
	var again registers
	if err := t.toSyscallStop(&again); err != nil {
		return 0, &brokenError{fmt.Errorf("enter system call again: %w", err)}
	}
	const highestErrno = 4095
	if result := syscallResult(&left); result < 0 && result >= -highestErrno {
		return 0, unix.Errno(-result)
	}
	return uint64(syscallResult(&left)), nil
}

// toSyscallStop runs the tracee to its next entry to or exit from a system call.
func (t *tracee) toSyscallStop(regs *registers) error {
	if err := unix.PtraceSyscall(t.pid, 0); err != nil {
		return err
	}
	const markedBySysgood = 0x80
	if err := awaitStop(t.pid, unix.SIGTRAP|markedBySysgood); err != nil {
		return err
	}
	return readRegisters(t.pid, regs)
}

// awaitStop waits until pid stops with exactly this signal.
func awaitStop(pid int, want unix.Signal) error {
	var status unix.WaitStatus
	err := ignoringEINTR(func() error {
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		return err
	})
	switch {
	case err != nil:
		return err
	case !status.Stopped():
		return fmt.Errorf("ended early: wait status %#x", uint32(status))
	case status.StopSignal() != want:
		return fmt.Errorf("stopped by signal %d, want %d", status.StopSignal(), want)
	}
	return nil
}
