// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

// exitLimit is how long apptainer may take to pass on how the session ended.
const exitLimit = 2 * time.Second

// sandbox is one session behind apptainer. The session is the first process of its pid
// namespace; apptainer's own processes wait for it outside, in the same cgroup.
type sandbox struct {
	record isolation.Record
	group  *cgroup.Group   // nil where no cgroup can be made
	cmd    *exec.Cmd       // apptainer; nil where another process launched it
	exited chan struct{}   // closed when cmd has ended and was reaped
	handle *process.Handle // the session; nil where it had ended before it was adopted
	done   chan struct{}   // closed when the session has ended
	killed atomic.Bool     // by Kill
	// unfiltered says that the session runs without our seccomp profile: this apptainer was
	// built without it.
	unfiltered bool

	status isolation.Status // final once done is closed
	known  bool
}

var (
	_ isolation.Explainer = (*sandbox)(nil)
	_ isolation.Warner    = (*sandbox)(nil)
)

// watch waits for the end of the session, and for apptainer's word on it.
func (s *sandbox) watch() {
	defer close(s.done)
	<-s.handle.Done()
	if s.cmd == nil {
		return
	}
	late := time.NewTimer(exitLimit)
	defer late.Stop()
	select {
	case <-s.exited:
		s.status, s.known = statusOf(s.cmd.ProcessState)
	case <-late.C:
	}
}

// statusOf is how apptainer ended: as the session did. A signal of its own, or its code
// for failures of its own, says nothing about the session.
func statusOf(state *os.ProcessState) (isolation.Status, bool) {
	ws, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return isolation.Status{}, false
	case ws.Signaled():
		return isolation.Status{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}, true
	}
	return isolation.StatusOfCode(ws.ExitStatus()), true
}

func (s *sandbox) Session() process.Identity { return s.record.Session }
func (s *sandbox) Done() <-chan struct{}     { return s.done }
func (s *sandbox) Record() isolation.Record  { return s.record }

func (s *sandbox) Status() (isolation.Status, bool) {
	select {
	case <-s.done:
		return s.status, s.known
	default:
		return isolation.Status{}, false
	}
}

// Warnings say what this apptainer and this node could not do (X23, X35).
func (s *sandbox) Warnings() []string {
	said := isolation.GroupWarnings(s.group)
	if s.unfiltered {
		said = append(said, "seccomp: off (this apptainer is built without it)")
	}
	return said
}

// EndReason says what somebody else did to the sandbox (P3).
func (s *sandbox) EndReason() string {
	select {
	case <-s.done:
	default:
		return ""
	}
	switch {
	case s.killed.Load():
		return ""
	case s.OOMKilled():
		return "The kernel ended the screen for memory: its processes reached their limit. Give the task more `memory`."
	case s.known && s.status.Signal == int(unix.SIGKILL):
		return "The sandbox hosting this screen is gone: apptainer or the session was killed from outside. Start the screen again; its home and logins are kept."
	}
	return ""
}

// Kill ends the session, and with it the kernel ends all others of its pid namespace
// before it lets it go (pid_namespaces(7)); then what stands outside of that: apptainer
// and the file system of the image.
func (s *sandbox) Kill(ctx context.Context) error {
	s.killed.Store(true)
	outside := s.outside()
	defer func() {
		for _, h := range outside {
			_ = h.Close()
		}
	}()
	if err := s.killSession(ctx); err != nil {
		return fmt.Errorf("kill session: %w", err)
	}
	if s.group != nil {
		if err := s.group.Kill(ctx); err != nil {
			return fmt.Errorf("kill session: %w", err)
		}
	} else if s.cmd != nil {
		select {
		case <-s.exited:
		default:
			if err := killTree(s.cmd.Process.Pid); err != nil {
				return fmt.Errorf("kill session: %w", err)
			}
		}
	}
	if s.exited != nil {
		select {
		case <-s.exited:
		case <-ctx.Done():
			return fmt.Errorf("kill session: apptainer (pid %d) still runs: %w", s.cmd.Process.Pid, ctx.Err())
		}
	}
	for _, h := range outside {
		select {
		case <-h.Done():
		case <-ctx.Done():
			return fmt.Errorf("kill session: pid %d still runs: %w", h.PID, ctx.Err())
		}
	}
	return nil
}

// outside holds what is in the cgroup and not in the session's pid namespace: apptainer, and
// the image's file system, whose parent is nobody of ours. A process leaves its group a moment
// before it has ended. Those inside end before the session does, and may be a fork bomb's.
func (s *sandbox) outside() []*process.Handle {
	if s.group == nil {
		return nil
	}
	pids, err := s.group.Procs()
	if err != nil {
		return nil // its kill says so
	}
	ours, _ := os.Readlink("/proc/self/ns/pid")
	var held []*process.Handle
	for _, pid := range pids {
		if its, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid"); err == nil && its != ours {
			continue
		}
		id, err := process.Observe(pid)
		if err != nil {
			continue
		}
		if h, err := process.Open(id); err == nil {
			held = append(held, h)
		}
	}
	return held
}

func (s *sandbox) killSession(ctx context.Context) error {
	if s.handle == nil {
		return nil
	}
	select {
	case <-s.done: // also after Remove
		return nil
	default:
	}
	if err := s.handle.Signal(unix.SIGKILL); err != nil && !errors.Is(err, process.ErrGone) {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pid %d still runs: %w", s.record.Session.PID, ctx.Err())
	}
}

// Remove takes the cgroup and the scratch files away. The mounts of the launch went with
// the last process of its mount namespace.
func (s *sandbox) Remove(context.Context) error {
	var errs []error
	if s.handle != nil {
		_ = s.handle.Close()
	}
	if s.group != nil {
		errs = append(errs, s.group.Remove())
	}
	errs = append(errs, isolation.RemoveScratch(s.record))
	return errors.Join(errs...)
}

func (s *sandbox) OOMKilled() bool { return isolation.OOMKilled(s.group) }

func (s *sandbox) Usage(context.Context) (isolation.Usage, error) {
	return isolation.GroupUsage(s.group)
}
