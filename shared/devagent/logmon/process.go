// SPDX-License-Identifier: MPL-2.0

package logmon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a collector on this machine. It is kept as JSON and found again by a
// later agent: a pid is one only together with its start time and the boot.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	Boot      string `json:"boot"`
}

// readyTimeout bounds the start of a collector.
const readyTimeout = 10 * time.Second

// Start makes the FIFOs and starts a collector for them, in a session of its own. It
// returns when the collector reads and record has kept it. One whose starter dies before
// that, or cannot keep it, ends by itself: nobody would find it again, and the next one
// would read the same FIFOs. command is the program with its sub-command.
func Start(ctx context.Context, command []string, spec Spec, record func(Process) error) error {
	if err := MakeFIFOs(spec.Dir, spec.Task); err != nil {
		return err
	}
	ready, leash, cmd, err := spawn(command, spec)
	if err != nil {
		return fmt.Errorf("start log collector: %w", err)
	}
	defer func() { _ = ready.Close(); _ = leash.Close() }()
	// Reap it whenever it ends, for as long as this process is its parent.
	go func() { _ = cmd.Wait() }()
	if err := awaitReady(ctx, ready); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("start log collector: %w", err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := record(p); err != nil {
		return err
	}
	if _, err := leash.Write([]byte{letGo}); err != nil {
		return fmt.Errorf("start log collector: %w", err)
	}
	return nil
}

// spawn starts the collector's process; ready is what it says, and leash what it waits for.
func spawn(command []string, spec Spec) (ready, leash *os.File, cmd *exec.Cmd, err error) {
	ready, says, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = says.Close() }()
	held, leash, err := os.Pipe()
	if err != nil {
		_ = ready.Close()
		return nil, nil, nil, err
	}
	defer func() { _ = held.Close() }()
	cmd = exec.Command(command[0], append(command[1:len(command):len(command)], spec.args()...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{says, held} // readyFD and leashFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, errors.Join(err, ready.Close(), leash.Close())
	}
	return ready, leash, cmd, nil
}

func awaitReady(ctx context.Context, r *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(r, 4096))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer: %w", ctx.Err())
	case err != nil:
		return err
	case string(text) == "ready":
		return nil
	case len(text) == 0:
		return errors.New("it ended at once")
	}
	return errors.New(string(text))
}

func identify(pid int) (Process, error) {
	start, err := startTime(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify log collector: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, fmt.Errorf("identify log collector: %w", err)
	}
	return Process{PID: pid, StartTime: start, Boot: boot}, nil
}

// Alive says whether the collector still runs.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := identify(p.PID)
	return err == nil && now == p
}

// Stop lets the collector write what it still has and end. Without an end in time
// it is killed.
func (p Process) Stop(ctx context.Context) error {
	if !p.Alive() {
		return nil
	}
	proc, err := os.FindProcess(p.PID)
	if err != nil {
		return nil
	}
	defer func() { _ = proc.Release() }()
	if err := proc.Signal(syscall.SIGTERM); err != nil {
		return nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			_ = proc.Signal(syscall.SIGKILL)
			return fmt.Errorf("stop log collector %d: %w", p.PID, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// startTime is field 22 of /proc/<pid>/stat (proc(5)). A zombie is not alive.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// Field 2 is the command in parentheses and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}
