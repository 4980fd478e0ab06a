// SPDX-License-Identifier: MPL-2.0

// Package process names a process so that a recycled pid is never taken for it:
// a pid is an identity only together with its start time and the boot it was
// started in (rule S10).
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Identity is one process of this node. The zero value names none.
type Identity struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot: field 22 of
	// /proc/<pid>/stat, see proc(5).
	Start uint64 `json:"start"`
	// Boot is /proc/sys/kernel/random/boot_id at the time of the observation.
	Boot string `json:"boot"`
}

// ErrGone says that the process named is not running any more, or never was.
var ErrGone = errors.New("process is gone")

// Boot returns the id of the running boot.
var Boot = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no /proc: an empty id never equals a recorded one
	}
	return strings.TrimSpace(string(text))
})

// Observe returns the identity of the process that has pid now.
// A zombie counts as gone: nothing of it runs.
func Observe(pid int) (Identity, error) {
	start, zombie, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	if zombie {
		return Identity{}, fmt.Errorf("observe pid %d: zombie: %w", pid, ErrGone)
	}
	return Identity{PID: pid, Start: start, Boot: Boot()}, nil
}

// Alive reports whether exactly this process still runs.
func (id Identity) Alive() bool {
	if id.PID <= 0 || id.Boot == "" || id.Boot != Boot() {
		return false
	}
	start, zombie, err := readStat(id.PID)
	return err == nil && !zombie && start == id.Start
}

// readStat returns field 22 of /proc/<pid>/stat and whether the process is a
// zombie. The command name in field 2 may hold spaces and parentheses, so fields
// are counted from the last ')'.
func readStat(pid int) (start uint64, zombie bool, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false, fmt.Errorf("observe pid %d: %w", pid, ErrGone)
	}
	return parseStat(text)
}

func parseStat(text []byte) (start uint64, zombie bool, err error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, false, errors.New("parse stat: no command name")
	}
	fields := strings.Fields(string(text[end+1:]))
	const state, startTime = 0, 19 // fields 3 and 22, counted from field 3
	if len(fields) <= startTime {
		return 0, false, fmt.Errorf("parse stat: %d fields after the name, want at least %d", len(fields), startTime+1)
	}
	start, err = strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("parse stat: start time: %w", err)
	}
	return start, fields[state] == "Z" || fields[state] == "X", nil
}

// Handle holds a process by pidfd (pidfd_open(2)): signals through it can never
// reach a successor of the pid.
type Handle struct {
	Identity
	fd    *os.File
	watch sync.Once
	done  chan struct{}
}

// Open takes hold of the process. It fails with ErrGone when the process has
// ended or the pid now names another one.
func Open(id Identity) (*Handle, error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold pid %d: %w", id.PID, errors.Join(ErrGone, err))
	}
	// Checked after the pidfd is held: from here on the pid cannot be recycled unseen.
	if !id.Alive() {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("hold pid %d: %w", id.PID, ErrGone)
	}
	return &Handle{Identity: id, fd: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}, nil
}

// Signal sends sig; nil when the process has already ended.
func (h *Handle) Signal(sig unix.Signal) error {
	raw, err := h.fd.SyscallConn()
	if err != nil {
		return fmt.Errorf("signal pid %d: %w", h.PID, err)
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return fmt.Errorf("signal pid %d: %w", h.PID, err)
	}
	if sent != nil && !errors.Is(sent, unix.ESRCH) {
		return fmt.Errorf("signal pid %d: %w", h.PID, sent)
	}
	return nil
}

// Done is closed when the process has ended or the handle was closed. The exit
// status is the parent's alone and not reported here.
func (h *Handle) Done() <-chan struct{} {
	h.watch.Do(func() { go h.awaitEnd() })
	return h.done
}

func (h *Handle) awaitEnd() {
	defer close(h.done)
	raw, err := h.fd.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
}

// Close lets go of the process without touching it.
func (h *Handle) Close() error { return h.fd.Close() }

// AwaitExit returns when a child of this process, which nobody has waited for yet, has
// ended. Its status is still there to be taken. Unlike wait(2) it holds no thread while it
// waits; where a pidfd cannot be had it returns at once.
func AwaitExit(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	h := Handle{fd: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	h.awaitEnd()
	_ = h.Close()
}

// readable reports whether a pidfd says that its process has ended.
func readable(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for err == unix.EINTR {
		n, err = unix.Poll(poll, 0)
	}
	return err == nil && n == 1 && poll[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0
}
