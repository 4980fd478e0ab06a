// SPDX-License-Identifier: MPL-2.0

package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// maxCommands bounds the commands of exec that run at once.
const maxCommands = 64

// commands are what one supervisor asked to run and has not ended.
type commands struct {
	reaper *desktop.Reaper

	mu    sync.Mutex // guards all below
	ended bool       // nothing starts any more
	// running holds the process group of each command by its id.
	running map[uint64]int
}

func newCommands(r *desktop.Reaper) *commands {
	return &commands{reaper: r, running: map[uint64]int{}}
}

// handleExec starts a command. It owns what was passed: stdin, stdout and stderr, or
// nothing where the command gets a terminal, whose master is passed out. The session
// keeps no copy of that: whoever holds one could write beside the supervisor (X10).
func (s *session) handleExec(l *link, packet dialhome.Packet, passed []*dialhome.Descriptor) {
	pipes := make([]*os.File, len(passed))
	for i, d := range passed {
		pipes[i] = d.File("pipe")
	}
	defer closeFiles(pipes)
	var request dialhome.Exec
	err := dialhome.Decode(packet.Body, &request)
	var cmd *exec.Cmd
	if err == nil {
		cmd, err = s.commandFor(request)
	}
	var terminal []*os.File
	if err == nil {
		terminal, err = l.commands.start(packet.ID, cmd, plumbing{request, pipes, s.log}, func(e dialhome.Exited) {
			l.post(dialhome.Packet{Event: dialhome.EventExited, Body: dialhome.Encode(e)})
		})
	}
	if err != nil {
		l.reply(packet.ID, nil, commandError(request, err))
		return
	}
	l.reply(packet.ID, nil, nil, terminal...)
}

// commandFor prepares the command in the desktop's environment.
func (s *session) commandFor(request dialhome.Exec) (*exec.Cmd, error) {
	if len(request.Argv) == 0 {
		return nil, errors.New("no command given")
	}
	s.mu.Lock()
	d, plan := s.desktop, s.plan
	s.mu.Unlock()
	if d == nil {
		return nil, errNoDesktop
	}
	argv, err := s.archiveArgv(request.Argv)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Args: argv, Env: append(s.commandEnv(d, request.GUI), request.Env...), Dir: request.Dir}
	if cmd.Dir == "" {
		cmd.Dir = plan.Home
	}
	// The kernel's error does not tell a missing directory from a missing command.
	if _, err := os.Stat(cmd.Dir); err != nil {
		return nil, fmt.Errorf("run command: working directory %q: %w", bounded(cmd.Dir), errors.Unwrap(err))
	}
	path, err := lookPath(argv[0], cmd.Env)
	cmd.Path = path
	return cmd, err
}

// commandEnv is the desktop's environment. A command that asked for no GUI gets an
// untrusted cookie: it reaches the display and can neither watch nor type (X3). Where
// the server makes none it has no display.
func (s *session) commandEnv(d *desktop.Desktop, gui bool) []string {
	if gui {
		return d.Env()
	}
	env, err := d.UntrustedEnv()
	if err != nil {
		fmt.Fprintf(s.log, "session: commands run without the display: %v\n", err)
	}
	return env
}

// lookPath is exec.LookPath in the PATH of the command's environment, not in ours.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && filepath.IsAbs(candidate) {
			return candidate, nil
		}
	}
	return name, fmt.Errorf("find %q in PATH: %w", name, exec.ErrNotFound)
}

// commandError tells the caller whether the command exists: exec answers 127 then.
func commandError(request dialhome.Exec, err error) *dialhome.Error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, errStart) && errors.Is(err, os.ErrNotExist) {
		return &dialhome.Error{Kind: dialhome.KindNotFound, Message: fmt.Sprintf("%q is not a command in this screen", bounded(request.Argv[0]))}
	}
	if errors.Is(err, unix.EAGAIN) { // see fork(2)
		return &dialhome.Error{Kind: dialhome.KindFailed, Message: "the screen is full of processes: its limit is reached. End some of them"}
	}
	return asError(err)
}

// errStart marks what the kernel said to the start of a command.
var errStart = errors.New("run command")

// plumbing is where a command's input and output go: to a terminal, or to pipes.
type plumbing struct {
	dialhome.Exec
	pipes []*os.File
	log   io.Writer
}

// connect gives cmd its input and output. With a terminal it returns both ends of it.
func (p plumbing) connect(cmd *exec.Cmd) (master, slave *os.File, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	want := dialhome.ExecFiles
	if p.TTY {
		want = 0
	}
	if len(p.pipes) != want {
		return nil, nil, fmt.Errorf("run command: %d descriptors came with the request, want %d", len(p.pipes), want)
	}
	if !p.TTY {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = p.pipes[0], p.pipes[1], p.pipes[2]
		return nil, nil, nil
	}
	master, slave, err = pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("run command: %w", err)
	}
	if p.Rows > 0 || p.Columns > 0 {
		_ = pty.Setsize(master, &pty.Winsize{Rows: p.Rows, Cols: p.Columns}) // a size is not worth a failure
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	return master, slave, nil
}

// start runs cmd in a session of its own and calls ended once, after which its id is
// free. It returns the terminal's master, if there is a terminal.
func (c *commands) start(id uint64, cmd *exec.Cmd, p plumbing, ended func(dialhome.Exited)) ([]*os.File, error) {
	master, slave, err := p.connect(cmd)
	if err != nil {
		return nil, err
	}
	err = c.launch(id, cmd, p)
	if slave != nil {
		_ = slave.Close()
	}
	if err != nil {
		if master != nil {
			_ = master.Close()
		}
		return nil, err
	}
	go func() {
		_ = c.reaper.Wait(cmd) // a status other than 0 is a result
		c.mu.Lock()
		delete(c.running, id)
		c.mu.Unlock()
		ended(exited(id, cmd.ProcessState))
	}()
	if master == nil {
		return nil, nil
	}
	return []*os.File{master}, nil
}

func (c *commands) launch(id uint64, cmd *exec.Cmd, p plumbing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return errors.New("run command: the supervisor is gone")
	case len(c.running) >= maxCommands:
		return fmt.Errorf("run command: %d commands run already", maxCommands)
	}
	start := c.reaper.Start
	if p.Marked {
		start = p.startMarked(c.reaper)
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("%w: %w", errStart, err)
	}
	c.running[id] = cmd.Process.Pid // Setsid: the pid is the process group
	return nil
}

// startMarked starts a command so that what it leaves can be found. Where that cannot be,
// a takeover ends its process group alone.
func (p plumbing) startMarked(r *desktop.Reaper) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		weak, err := r.StartMarked(cmd)
		if weak != nil {
			fmt.Fprintf(p.log, "session: a takeover ends only the process group of commands: %v\n", weak)
		}
		return err
	}
}

func exited(id uint64, state *os.ProcessState) dialhome.Exited {
	const unknown = 255
	if state == nil {
		return dialhome.Exited{Command: id, Code: unknown}
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return dialhome.Exited{Command: id, Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return dialhome.Exited{Command: id, Code: state.ExitCode()}
}

// signal reaches the command's process group; an ended command is no error.
func (c *commands) signal(id uint64, sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if group, ok := c.running[id]; ok {
		_ = unix.Kill(-group, sig)
	}
}

// end kills all commands and lets none start any more.
func (c *commands) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, group := range c.running {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}
