// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
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

// shimIdentity is the driver state: which processes a task is, beyond doubt.
type shimIdentity struct {
	Dir       string    `json:"dir"`
	Shim      int       `json:"shim"`
	ShimStart uint64    `json:"shim_start"`
	Boot      string    `json:"boot"`
	Lead      int       `json:"lead"`
	UID       int       `json:"uid"`
	Started   time.Time `json:"started"`
}

type shellTask struct {
	identity shimIdentity
	config   *nomadplugin.TaskConfig
	done     chan struct{}

	mu       sync.Mutex // guards sessions
	sessions []int      // of the commands that were run in the task
}

// startShell starts a shim and its command, after whatever another start of the same task left.
func startShell(dir string, config *nomadplugin.TaskConfig, command string) (task *shellTask, err error) {
	uid, err := uidOf(config.GetUser())
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	logs, err := openLogs(config)
	if err != nil {
		return nil, err
	}
	defer closeAll(logs)
	plan := shimPlan{Dir: dir, Command: command, UID: uid, Env: environ(config.GetEnv()), Cwd: "/"}
	identity, err := launchShim(plan, lock, logs)
	if err != nil {
		return nil, err
	}
	return watch(identity, config)
}

func environ(env map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

func uidOf(name string) (int, error) {
	const nobody = 65534
	if name == "" {
		return nobody, nil
	}
	if id, ok := strings.CutPrefix(name, "nomad-"); ok {
		return strconv.Atoi(id)
	}
	found, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Uid)
}

// lockDir takes the lock that a live shim of the task holds, by ending that shim if need be.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, os.RemoveAll(filepath.Join(dir, "exit")) // of an earlier run
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("leftover in %s does not end: %w", dir, err), lock.Close())
		}
		if identity, err := readIdentity(dir); err == nil && identity.alive() {
			_ = syscall.Kill(identity.Shim, syscall.SIGTERM)
		}
	}
}

func readIdentity(dir string) (identity shimIdentity, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "shim"))
	if err == nil {
		err = json.Unmarshal(data, &identity)
	}
	return identity, err
}

func openLogs(config *nomadplugin.TaskConfig) (logs []*os.File, err error) {
	for _, path := range []string{config.GetStdoutPath(), config.GetStderrPath()} {
		file, err := openLog(path)
		if err != nil {
			closeAll(logs)
			return nil, err
		}
		logs = append(logs, file)
	}
	return logs, nil
}

func openLog(path string) (*os.File, error) {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), unix.SetNonblock(fd, false)
		case !errors.Is(err, unix.ENXIO):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		case time.Now().After(deadline):
			return nil, nomadplugin.Recoverable(fmt.Errorf("open %s: nobody reads it", path))
		}
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

func (s shimIdentity) alive() bool {
	start, err := procStart(s.Shim)
	return err == nil && start == s.ShimStart && s.Boot == bootID()
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(id))
}

// watch arms the end of a task. It opens the shim by descriptor, so that a recycled pid is harmless.
func watch(identity shimIdentity, config *nomadplugin.TaskConfig) (*shellTask, error) {
	task := &shellTask{identity: identity, config: config, done: make(chan struct{})}
	fd, err := unix.PidfdOpen(identity.Shim, 0)
	if err != nil || !identity.alive() {
		if err == nil {
			_ = unix.Close(fd)
		}
		close(task.done)
		return task, nil
	}
	go func() {
		defer close(task.done)
		defer unix.Close(fd)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		// Our own child must not stay a zombie; somebody else's is not ours to reap.
		_, _ = syscall.Wait4(identity.Shim, nil, 0, nil)
	}()
	return task, nil
}

func recoverShell(identity shimIdentity, config *nomadplugin.TaskConfig) (*shellTask, error) {
	if identity.Dir == "" || identity.Shim < 2 {
		return nil, errors.New("driver state names no task")
	}
	return watch(identity, config)
}

func (t *shellTask) running() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

func (t *shellTask) result() (*nomadplugin.ExitResult, error) {
	data, err := os.ReadFile(filepath.Join(t.identity.Dir, "exit"))
	result := &nomadplugin.ExitResult{}
	if err == nil {
		err = json.Unmarshal(data, result)
	}
	if err != nil {
		return &nomadplugin.ExitResult{ExitCode: -1}, errors.New("task lost while the driver was down")
	}
	return result, nil
}

func (t *shellTask) signal(sig syscall.Signal) error {
	if !t.running() {
		return errors.New("task is not running")
	}
	return syscall.Kill(t.identity.Lead, sig)
}

// kill ends the task through its shim, which leaves no descendant.
func (t *shellTask) kill() error {
	t.killCommands()
	if t.running() && t.identity.alive() {
		_ = syscall.Kill(t.identity.Shim, syscall.SIGTERM)
	}
	select {
	case <-t.done:
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("task does not end")
	}
}

// command runs in the task's context and dies as a group with ctx.
func (t *shellTask) command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = environ(t.config.GetEnv()), "/"
	id := uint32(t.identity.UID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: id, Gid: id}}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 300 * time.Millisecond
	return cmd
}

// begin notes the session of a command, so that what it leaves behind dies with the task.
func (t *shellTask) begin(cmd *exec.Cmd, start func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := start(); err != nil {
		return err
	}
	t.sessions = append(t.sessions, cmd.Process.Pid)
	return nil
}

func (t *shellTask) killCommands() {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 4 {
			continue
		}
		session, _ := strconv.Atoi(fields[3])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if slices.Contains(t.sessions, session) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (t *shellTask) execPipes(cmd *exec.Cmd, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	cmd.Stdout, cmd.Stderr = req.Stdout, req.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := t.begin(cmd, cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		defer stdin.Close()
		_, _ = io.Copy(stdin, req.Stdin)
	}()
	_ = cmd.Wait()
	return exitResult(cmd.ProcessState), nil
}

func (t *shellTask) execTerminal(cmd *exec.Cmd, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	var terminal *os.File
	err := t.begin(cmd, func() (err error) {
		terminal, err = pty.Start(cmd)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	go func() { _, _ = io.Copy(terminal, req.Stdin) }()
	go func() {
		for size := range req.Resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Rows, Cols: size.Columns})
		}
	}()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(req.Stdout, terminal)
	}()
	_ = cmd.Wait()
	select {
	case <-drained:
	case <-time.After(200 * time.Millisecond): // a background process holds the terminal
	}
	return exitResult(cmd.ProcessState), nil
}

func exitResult(state *os.ProcessState) *nomadplugin.ExitResult {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return &nomadplugin.ExitResult{ExitCode: 128 + int32(status.Signal()), Signal: int32(status.Signal())}
	}
	return &nomadplugin.ExitResult{ExitCode: int32(state.ExitCode())}
}

func signalByName(name string) (syscall.Signal, error) {
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("signal %q is unknown", name)
}

func rss(pid int) uint64 {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if fields := strings.Fields(string(data)); len(fields) > 1 {
		pages, _ := strconv.ParseUint(fields[1], 10, 64)
		return pages * uint64(os.Getpagesize())
	}
	return 0
}

func procStart(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
