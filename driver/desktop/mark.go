// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// The mark is a hard limit that is one below our own, on the bytes of POSIX message
// queues, which nothing on a desktop uses. A process inherits its limits, keeps them over
// exec and setsid, and without privileges can lower but never raise a hard one, see
// setrlimit(2). So whatever a marked command starts is marked, however it tries to hide:
// unlike a process group, a parent or a variable, the mark cannot be left (rule X20).
const markResource = unix.RLIMIT_MSGQUEUE

var errUnmarkable = errors.New("this node leaves no limit to mark commands with")

// StartMarked starts cmd as Start does, and marks it before its first instruction. Where
// the node forbids to trace a child, which that takes, it is started without the mark and
// weak says why: then only its process group is known to be its.
func (r *Reaper) StartMarked(cmd *exec.Cmd) (weak, err error) {
	type result struct{ weak, err error }
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // whoever starts a traced child is its tracer
		defer runtime.UnlockOSThread()
		weak, err := r.startMarked(cmd)
		done <- result{weak, err}
	}()
	got := <-done
	return got.weak, got.err
}

func (r *Reaper) startMarked(cmd *exec.Cmd) (weak, err error) {
	var own unix.Rlimit
	if err := unix.Getrlimit(markResource, &own); err != nil || own.Max == 0 {
		return errors.Join(errUnmarkable, err), r.Start(cmd)
	}
	again := unstarted(cmd)
	cmd.SysProcAttr.Ptrace = true
	switch err := r.Start(cmd); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
		*cmd = again
		return fmt.Errorf("mark command: %w", err), r.Start(cmd)
	case err != nil:
		return nil, err
	}
	if err := mark(cmd.Process.Pid, own.Max-1); err != nil {
		_ = cmd.Process.Kill() // it stands still, and must not run unmarked
		_ = r.Wait(cmd)
		return nil, fmt.Errorf("mark command: %w", err)
	}
	return nil, nil
}

// unstarted is a copy of cmd from before its start.
func unstarted(cmd *exec.Cmd) exec.Cmd {
	attributes := *cmd.SysProcAttr
	return exec.Cmd{
		Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, ExtraFiles: cmd.ExtraFiles,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: &attributes,
	}
}

// mark lowers the limit of a child that stopped at its exec, and lets it go.
func mark(pid int, most uint64) error {
	if err := awaitStop(pid, unix.SIGTRAP); err != nil {
		return fmt.Errorf("await exec: %w", err)
	}
	limit := unix.Rlimit{Max: most}
	var now unix.Rlimit
	if err := unix.Prlimit(pid, markResource, nil, &now); err != nil {
		return fmt.Errorf("read limit: %w", err)
	}
	limit.Cur = min(now.Cur, most)
	if err := unix.Prlimit(pid, markResource, &limit, nil); err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	return unix.PtraceDetach(pid)
}

// marked tells processes with the mark. One that does not let itself be read is not one
// of the desktop's own, which have our uid and our limits.
func marked() func(pid int) bool {
	var own unix.Rlimit
	if err := unix.Getrlimit(markResource, &own); err != nil || own.Max == 0 {
		return func(int) bool { return false }
	}
	return func(pid int) bool {
		var limit unix.Rlimit
		switch err := unix.Prlimit(pid, markResource, nil, &limit); err {
		case nil:
			return limit.Max < own.Max
		case unix.ESRCH:
			return false
		default:
			return true
		}
	}
}
