// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// Reaper collects the exit status of orphans that this process, as their
// sub-reaper, inherits, and leaves alone the children that somebody waits for.
//
// The kernel hands out one list of dead children per process, so there is one
// Reaper per process and every child is started through it: a child started
// behind its back would lose its exit status to Run. The zero value is ready.
type Reaper struct {
	mu    sync.Mutex
	owned map[int]struct{} // guarded by mu; pids whose status belongs to somebody
	wake  chan struct{}    // guarded by mu; has room for one
	taken bool             // guarded by mu; a desktop has the processes below this one
}

// NewReaper returns a Reaper. Its Run makes it work.
func NewReaper() *Reaper { return &Reaper{} }

// Start starts cmd as a child whose status belongs to the caller, who must call
// Wait with the same cmd. Its memory is the first to be taken when there is none left.
func (r *Reaper) Start(cmd *exec.Cmd) error { return r.startAs(cmd, scoreGuest) }

// Wait waits for a command that Start started and gives its pid free. A thread for every
// child that runs would be missing in a screen that is full of processes (DOC-01).
func (r *Reaper) Wait(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	defer r.disown(pid)
	process.AwaitExit(pid)
	return cmd.Wait()
}

// own runs start, which forks, and registers the child before Run can see it.
func (r *Reaper) own(start func() (pid int, err error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := start()
	if err != nil {
		return err
	}
	if r.owned == nil {
		r.owned = map[int]struct{}{}
	}
	r.owned[pid] = struct{}{}
	return nil
}

// disown forgets a child that has been waited for. Its pid may already belong
// to an orphan that Run skipped for its sake, so Run looks again.
func (r *Reaper) disown(pid int) {
	r.mu.Lock()
	delete(r.owned, pid)
	wake := r.wakeChannel()
	r.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default: // one pending look sees everything
	}
}

// take makes the caller the one desktop of this process until leave. Every
// process below belongs to it, so there cannot be two.
func (r *Reaper) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := !r.taken
	r.taken = true
	return free
}

func (r *Reaper) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
}

// wakeChannel is called with mu held.
func (r *Reaper) wakeChannel() chan struct{} {
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	return r.wake
}

// Run reaps orphans until ctx ends.
func (r *Reaper) Run(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	r.mu.Lock()
	wake := r.wakeChannel()
	r.mu.Unlock()
	for {
		if err := r.reap(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-children:
		case <-wake:
		}
	}
}

// reap collects dead orphans until the first dead child is an owned one (its
// owner collects it and wakes us) or none is dead.
func (r *Reaper) reap() error {
	for {
		again, err := r.reapOne()
		if err != nil || !again {
			return err
		}
	}
}

// reapOne looks at the first dead child without taking its status (WNOWAIT) and
// takes it only when nobody owns it. The lock keeps a new child from being born
// between the look and the decision.
func (r *Reaper) reapOne() (again bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var info unix.Siginfo
	err = ignoringEINTR(func() error {
		return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	pid := childPID(&info)
	switch {
	case err == unix.ECHILD:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for dead children: %w", err)
	case pid == 0:
		return false, nil
	case info.Code != cldExited && info.Code != cldKilled && info.Code != cldDumped:
		return false, nil // a stop of a child that is being traced at its start, see trace.go
	}
	if _, owned := r.owned[pid]; owned {
		return false, nil
	}
	err = ignoringEINTR(func() error {
		_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return err
	})
	if err != nil && err != unix.ECHILD {
		return false, fmt.Errorf("reap pid %d: %w", pid, err)
	}
	return true, nil
}

// Values of si_code for SIGCHLD, see sigaction(2).
const (
	cldExited = 1
	cldKilled = 2
	cldDumped = 3
)

// childPID is si_pid, which x/sys keeps unexported: on 64-bit Linux it follows
// si_signo, si_errno, si_code and four bytes of padding.
func childPID(info *unix.Siginfo) int {
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), 16)))
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
