// SPDX-License-Identifier: MPL-2.0

package devagenttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// identity is what a task is found by again.
type identity struct {
	PID   int
	Start string
	// Exit is the file with the exit code.
	Exit string
}

func (i identity) alive() bool { return i.Start != "" && startOf(i.PID) == i.Start }

// startOf is field 22 of /proc/<pid>/stat; "" for a process that is gone.
func startOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

type task struct {
	identity identity
	config   *nomadplugin.TaskConfig
	done     chan struct{}

	mu     sync.Mutex // guards killed
	killed bool
}

// wrapper runs the command and keeps its exit code; signals are for the command.
const wrapper = `trap : TERM INT HUP USR1; sh -c "$0" sh "$@"; echo $? > "$EXIT_FILE.new"; mv "$EXIT_FILE.new" "$EXIT_FILE"`

func startTask(dir string, c *nomadplugin.TaskConfig, o config) (*task, error) {
	own := filepath.Join(dir, strings.ReplaceAll(c.GetId(), "/", "."))
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	t := &task{config: c, done: make(chan struct{}), identity: identity{Exit: filepath.Join(own, "exit")}}
	cmd := exec.Command("/bin/sh", append([]string{"-c", wrapper, o.Command}, o.Args...)...)
	cmd.Env = append(environ(c.GetEnv()), "EXIT_FILE="+t.identity.Exit)
	cmd.Dir = filepath.Join(c.GetAllocDir(), c.GetName())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, log := range []struct {
		path string
		into *io.Writer
	}{{c.GetStdoutPath(), &cmd.Stdout}, {c.GetStderrPath(), &cmd.Stderr}} {
		f, err := os.OpenFile(log.path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, nomadplugin.Recoverable(fmt.Errorf("open log: %w", err))
		}
		defer func() { _ = f.Close() }()
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			return nil, err
		}
		*log.into = f
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.identity.PID, t.identity.Start = cmd.Process.Pid, startOf(cmd.Process.Pid)
	_ = cmd.Process.Release()
	t.watch()
	return t, nil
}

func environ(env map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// watch closes done when the task is gone.
func (t *task) watch() {
	fd, err := unix.PidfdOpen(t.identity.PID, 0)
	if err != nil || !t.identity.alive() {
		close(t.done)
		return
	}
	go func() {
		defer close(t.done)
		defer func() { _ = unix.Close(fd) }()
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_, _ = syscall.Wait4(t.identity.PID, nil, 0, nil)
	}()
}

func (t *task) running() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

func (t *task) result() *nomadplugin.ExitResult {
	text, err := os.ReadFile(t.identity.Exit)
	t.mu.Lock()
	defer t.mu.Unlock()
	code, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil || parseErr != nil || t.killed:
		return &nomadplugin.ExitResult{ExitCode: 137, Signal: 9}
	case code > 128:
		return &nomadplugin.ExitResult{ExitCode: int32(code), Signal: int32(code - 128)}
	}
	return &nomadplugin.ExitResult{ExitCode: int32(code)}
}

func (t *task) signal(name string) error {
	n, err := signalNumber(name)
	if err != nil || !t.running() {
		return err
	}
	return unix.Kill(-t.identity.PID, n)
}

func (t *task) kill() {
	if !t.running() || !t.identity.alive() {
		return
	}
	t.mu.Lock()
	t.killed = true
	t.mu.Unlock()
	_ = unix.Kill(-t.identity.PID, unix.SIGKILL)
}

func (t *task) exec(ctx context.Context, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	if !t.running() {
		return nil, errors.New("task is not running")
	}
	cmd := exec.CommandContext(ctx, req.Command[0], req.Command[1:]...)
	cmd.Env = environ(t.config.GetEnv())
	cmd.WaitDelay = 300 * time.Millisecond
	if req.TTY {
		return execTTY(cmd, req)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = req.Stdout, req.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(stdin, req.Stdin)
		_ = stdin.Close()
	}()
	_ = cmd.Wait()
	return exitOf(cmd), nil
}

func execTTY(cmd *exec.Cmd, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	f, err := pty.Start(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		for size := range req.Resize {
			_ = pty.Setsize(f, &pty.Winsize{Rows: size.Rows, Cols: size.Columns})
		}
	}()
	go func() { _, _ = io.Copy(f, req.Stdin) }()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(req.Stdout, f)
	}()
	_ = cmd.Wait()
	<-drained
	_ = f.Close()
	return exitOf(cmd), nil
}

func exitOf(cmd *exec.Cmd) *nomadplugin.ExitResult {
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return &nomadplugin.ExitResult{ExitCode: 128 + int32(s.Signal()), Signal: int32(s.Signal())}
	}
	return &nomadplugin.ExitResult{ExitCode: int32(cmd.ProcessState.ExitCode())}
}
