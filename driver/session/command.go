// SPDX-License-Identifier: MPL-2.0

package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// maxCommands bounds the commands of exec that run at once.
const maxCommands = 64

var errNoDesktop = &dialhome.Error{Kind: dialhome.KindState, Message: "no desktop runs in this session"}

// commands are what exec started and has not ended.
type commands struct {
	reaper *desktop.Reaper
	mu     sync.Mutex // guards running
	// running holds the process group of each command by its id.
	running map[uint64]int
}

func newCommands(r *desktop.Reaper) *commands {
	return &commands{reaper: r, running: map[uint64]int{}}
}

// handleExec starts a command and passes its descriptors out. The session keeps no
// copy of them: whoever holds one could write beside the supervisor (X10).
func (s *session) handleExec(conn *dialhome.Conn, packet dialhome.Packet) {
	var request dialhome.Exec
	err := dialhome.Decode(packet.Body, &request)
	if err == nil && len(request.Argv) == 0 {
		err = errors.New("no command given")
	}
	if err != nil {
		reply(conn, packet.ID, nil, asError(err))
		return
	}
	s.mu.Lock()
	env, d, plan := request.Env, s.desktop, s.plan
	s.mu.Unlock()
	if d == nil || plan == nil {
		reply(conn, packet.ID, nil, errNoDesktop)
		return
	}
	cmd := exec.Command(request.Argv[0])
	cmd.Args = request.Argv
	cmd.Env = append(d.Env(), env...)
	cmd.Dir = request.Dir
	if cmd.Dir == "" {
		cmd.Dir = plan.Home
	}
	cmd.Path, cmd.Err = lookPath(request.Argv[0], cmd.Env)
	files, err := s.commands.start(packet.ID, cmd, request.TTY, func(e dialhome.Exited) { s.emit(dialhome.EventExited, e) })
	if err != nil {
		reply(conn, packet.ID, nil, commandError(request.Argv[0], err))
		return
	}
	reply(conn, packet.ID, nil, nil, files...)
	for _, f := range files {
		_ = f.Close()
	}
}

// commandError tells the caller whether the command exists: exec answers 127 then.
func commandError(name string, err error) *dialhome.Error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &dialhome.Error{Kind: dialhome.KindNotFound, Message: fmt.Sprintf("%q is not a command in this screen", bounded(name))}
	}
	return asError(err)
}

// start runs cmd in a session of its own and calls ended once, after which its id is
// free. The files are the far ends: the terminal, or stdin, stdout and stderr.
func (c *commands) start(id uint64, cmd *exec.Cmd, tty bool, ended func(dialhome.Exited)) ([]*os.File, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	near, far, err := plumb(cmd, tty)
	if err != nil {
		return nil, fmt.Errorf("run command: %w", err)
	}
	closeNear := func() {
		for _, f := range near {
			_ = f.Close()
		}
	}
	defer closeNear()
	if err := c.launch(id, cmd); err != nil {
		for _, f := range far {
			_ = f.Close()
		}
		return nil, err
	}
	go func() {
		err := c.reaper.Wait(cmd)
		c.mu.Lock()
		delete(c.running, id)
		c.mu.Unlock()
		ended(exited(id, cmd, err))
	}()
	return far, nil
}

func (c *commands) launch(id uint64, cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.running) >= maxCommands {
		return fmt.Errorf("run command: %d commands run already", maxCommands)
	}
	if err := c.reaper.Start(cmd); err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	c.running[id] = cmd.Process.Pid // Setsid: the pid is the process group
	return nil
}

// plumb connects cmd to a terminal or to pipes; near ends are the command's.
func plumb(cmd *exec.Cmd, tty bool) (near, far []*os.File, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if tty {
		master, slave, err := pty.Open()
		if err != nil {
			return nil, nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		return []*os.File{slave}, []*os.File{master}, nil
	}
	var pipes [3][2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			closePipes(pipes[:i])
			return nil, nil, err
		}
		pipes[i] = [2]*os.File{r, w}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[0][0], pipes[1][1], pipes[2][1]
	return []*os.File{pipes[0][0], pipes[1][1], pipes[2][1]},
		[]*os.File{pipes[0][1], pipes[1][0], pipes[2][0]}, nil
}

func closePipes(pipes [][2]*os.File) {
	for _, p := range pipes {
		_ = p[0].Close()
		_ = p[1].Close()
	}
}

func exited(id uint64, cmd *exec.Cmd, err error) dialhome.Exited {
	if cmd.ProcessState == nil {
		return dialhome.Exited{Command: id, Code: 255}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return dialhome.Exited{Command: id, Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	_ = err // a non-zero status is a result
	return dialhome.Exited{Command: id, Code: cmd.ProcessState.ExitCode()}
}

// handleSignal signals one command, or everything below the session.
func (s *session) handleSignal(conn *dialhome.Conn, packet dialhome.Packet) {
	var request dialhome.Signal
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		reply(conn, packet.ID, nil, asError(err))
		return
	}
	sig := unix.Signal(request.Signal)
	if request.Command != 0 {
		s.commands.signal(request.Command, sig)
		reply(conn, packet.ID, nil, nil)
		return
	}
	if err := s.signalPrograms(sig); err != nil {
		reply(conn, packet.ID, nil, asError(err))
		return
	}
	reply(conn, packet.ID, nil, nil)
}

// signalPrograms reaches every program on the desktop but the X server: a signal meant
// for the programs must not take the screen away from under them.
func (s *session) signalPrograms(sig unix.Signal) error {
	s.mu.Lock()
	d := s.desktop
	s.mu.Unlock()
	if d == nil {
		return errNoDesktop
	}
	pids, err := process.Descendants(os.Getpid())
	if err != nil {
		return fmt.Errorf("signal programs: %w", err)
	}
	for _, pid := range pids {
		if pid != d.XServerPID() {
			_ = unix.Kill(pid, sig) // one that has just ended is no failure
		}
	}
	return nil
}

// signal reaches the command's process group; an ended command is no error.
func (c *commands) signal(id uint64, sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if group, ok := c.running[id]; ok {
		_ = unix.Kill(-group, sig)
	}
}

func (c *commands) signalAll(sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range c.running {
		_ = unix.Kill(-group, sig)
	}
}
