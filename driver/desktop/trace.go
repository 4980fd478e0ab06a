// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// makeUndumpable makes a child that stopped at its exec (it asked to be traced)
// call prctl(PR_SET_DUMPABLE, 0) as its very first system call, and lets it run.
//
// exec makes every process dumpable, so neither the parent nor a wrapper can
// set this beforehand, and a preloaded library would need a file, a matching
// libc and LD_PRELOAD in the environment of the X server (rule X2). Only
// registers are changed: once the child is not dumpable its memory is closed
// to an unprivileged tracer, too.
//
// It must be called on the OS thread that started the child. On an error the
// child may be in any state and is to be killed.
func makeUndumpable(pid int) error {
	if err := awaitStop(pid, unix.SIGTRAP); err != nil {
		return fmt.Errorf("await exec: %w", err)
	}
	// Marks the stops at system calls, so that no other stop is taken for one.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("set trace options: %w", err)
	}
	var entered, left registers
	if err := toSyscallStop(pid, &entered); err != nil {
		return fmt.Errorf("enter first system call: %w", err)
	}
	if err := replaceSyscall(pid, entered, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0); err != nil {
		return fmt.Errorf("replace first system call: %w", err)
	}
	if err := toSyscallStop(pid, &left); err != nil {
		return fmt.Errorf("leave first system call: %w", err)
	}
	if result := syscallResult(&left); result != 0 {
		return fmt.Errorf("prctl(PR_SET_DUMPABLE) in the child: %w", unix.Errno(-result))
	}
	if err := repeatSyscall(pid, entered); err != nil {
		return fmt.Errorf("repeat first system call: %w", err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		return fmt.Errorf("let go: %w", err)
	}
	return nil
}

// toSyscallStop runs pid to its next entry to or exit from a system call.
func toSyscallStop(pid int, regs *registers) error {
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return err
	}
	const markedBySysgood = 0x80
	if err := awaitStop(pid, unix.SIGTRAP|markedBySysgood); err != nil {
		return err
	}
	return readRegisters(pid, regs)
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
