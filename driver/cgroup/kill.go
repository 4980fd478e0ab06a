// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// SurvivorsError says that processes of a group are still there after SIGKILL; one in an uninterruptible sleep
// (a hung disk or network file system) cannot die.
type SurvivorsError struct {
	PIDs []int
	Err  error
}

func (e *SurvivorsError) Error() string {
	return fmt.Sprintf("processes %v survive SIGKILL: %v", e.PIDs, e.Err)
}

func (e *SurvivorsError) Unwrap() error { return e.Err }

// freezeForKill bounds how long a kill waits for the freezer, which one process in an uninterruptible sleep holds up.
const freezeForKill = 500 * time.Millisecond

// heldAtOnce bounds how many processes a kill holds open. A fork bomb has as many as the group may have, which can be
// more than this process may have files: 4096 by the kernel's default, and twenty screens may stop at once.
const heldAtOnce = 64

// Kill ends every process of the group, also those that left their process group or session or fork all the
// time, and returns when none is left (S9, DSP-16). When ctx ends first the error is a [SurvivorsError].
//
// A signal goes through a pidfd whose process was seen in the group after the pidfd was opened, so never to a
// stranger that got a recycled pid (S10).
func (g *Group) Kill(ctx context.Context) error {
	for {
		members, err := g.members()
		if err != nil {
			return fmt.Errorf("kill cgroup %s: %w", g.name, err)
		}
		if len(members) == 0 {
			return nil
		}
		err = g.killOnce(ctx)
		if err == nil {
			err = members.wait(ctx)
		}
		left := members.close()
		if err != nil {
			return fmt.Errorf("kill cgroup %s: %w", g.name, &SurvivorsError{PIDs: left, Err: err})
		}
	}
}

// killOnce signals everybody who is in the group now.
func (g *Group) killOnce(ctx context.Context) error {
	if d := &g.dirs[0]; d.V2 {
		err := write(d.dir, "cgroup.kill", "1")
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Before Linux 5.14 the unified hierarchy has no kill of its own.
	}
	// Frozen, nobody forks away from us. The signal takes effect at the thaw.
	brake, cancel := context.WithTimeout(ctx, freezeForKill)
	defer cancel()
	if err := g.Freeze(brake); err != nil {
		g.stopForks()
	}
	// Everybody is told, also who was forked since the first look; they are waited for in the next rounds.
	err := g.signalAll()
	if g.with("freezer") == nil {
		return err
	}
	thaw := g.Thaw(ctx)
	if gone(thaw) {
		thaw = nil // somebody else killed and removed it meanwhile: only an empty group can be removed
	}
	return errors.Join(err, thaw)
}

// stopForks is the freezer's stand-in: with a limit of 0 no fork succeeds any more.
func (g *Group) stopForks() {
	if d := g.with("pids"); d != nil {
		_ = write(d.dir, "pids.max", "0")
	}
}

// members are living processes of a group, each held by a pidfd.
type members []member

type member struct {
	pid int
	fd  *os.File
}

// members holds the first living processes of the group, not more than heldAtOnce; none says that none lives.
func (g *Group) members() (members, error) {
	pids, err := g.Procs()
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(pids, heldAtOnce) {
		if held, err := g.hold(some); err != nil || len(held) > 0 {
			return held, err
		}
	}
	return nil, nil
}

// signalAll sends SIGKILL to all that are in the group now.
func (g *Group) signalAll() error {
	pids, err := g.Procs()
	if err != nil {
		return err
	}
	for some := range slices.Chunk(pids, heldAtOnce) {
		held, err := g.hold(some)
		held.signal()
		held.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// hold opens a pidfd for each of the pids and keeps those that are in the group still, and alive.
func (g *Group) hold(pids []int) (members, error) {
	var opened members
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			opened.close()
			return nil, fmt.Errorf("open process %d: %w", pid, err)
		}
		// Non-blocking, so that Go's poller takes it and waiting for an exit costs no thread.
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(fd)
			opened.close()
			return nil, fmt.Errorf("open process %d: %w", pid, err)
		}
		opened = append(opened, member{pid, os.NewFile(uintptr(fd), "pidfd")})
	}
	still, err := g.Procs()
	if err != nil {
		opened.close()
		return nil, err
	}
	return slices.DeleteFunc(opened, func(m member) bool {
		if _, in := slices.BinarySearch(still, m.pid); !in || m.exited() {
			m.fd.Close()
			return true
		}
		return false
	}), nil
}

// exited reports whether the process has ended, reaped or not.
func (m member) exited() bool {
	done := true
	_ = m.control(func(fd int) { done = readable(fd) })
	return done
}

func (m member) control(f func(fd int)) error {
	raw, err := m.fd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// readable: a pidfd can be read, for poll(2), once its process has ended.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

func (ms members) signal() {
	for _, m := range ms {
		// ESRCH is the only answer to expect, and it is what we are after.
		_ = m.control(func(fd int) { _ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
	}
}

// wait returns when all have ended, or the cause of ctx.
func (ms members) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		for _, m := range ms {
			_ = m.fd.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	for _, m := range ms {
		raw, err := m.fd.SyscallConn()
		if err == nil {
			err = raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
		}
		if err != nil {
			return errors.Join(context.Cause(ctx), ignoreDeadline(err))
		}
	}
	return nil
}

func ignoreDeadline(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// close closes all and returns the pids of those that live.
func (ms members) close() []int {
	var left []int
	for _, m := range ms {
		if !m.exited() {
			left = append(left, m.pid)
		}
		m.fd.Close()
	}
	return left
}
