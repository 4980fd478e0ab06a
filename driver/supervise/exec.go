// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
)

// askTimeout bounds a question to the session that it answers at once.
const askTimeout = 10 * time.Second

// command is a program that the session runs for a caller of exec. Its output is
// carried here, by the supervisor: the plugin, which is root, never touches bytes
// from inside.
type command struct {
	supervisor *supervisor
	id         uint64
	stdin      io.WriteCloser
	stdout     io.ReadCloser
	stderr     io.ReadCloser
	terminal   *passedConn
	exited     chan dialhome.Exited
}

// Exec starts a command inside the session.
func (s *supervisor) Exec(ctx context.Context, _ controlserver.Caller, req control.ExecRequest) (controlserver.Process, error) {
	env := make([]string, 0, len(req.Env)+1)
	if req.TTY {
		env = append(env, "TERM=xterm-256color")
	}
	for name, value := range req.Env {
		env = append(env, name+"="+value)
	}
	want := 3
	if req.TTY {
		want = 1
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request := dialhome.Exec{Argv: req.Argv, Env: env, Dir: req.Dir, TTY: req.TTY}
	packet, files, err := s.link.call(bounded, dialhome.OpExec, request, want)
	if err != nil {
		return nil, execRefusal(err)
	}
	c := &command{supervisor: s, id: packet.ID, exited: s.awaitCommand(packet.ID)}
	if err := c.adopt(files, req.TTY); err != nil {
		c.Kill()
		return nil, fmt.Errorf("exec: %w", err)
	}
	if req.Size != nil {
		_ = c.Resize(*req.Size)
	}
	return c, nil
}

// execRefusal tells a caller what it can do about a refusal of the session.
func execRefusal(err error) error {
	var refusal *dialhome.Error
	if !errors.As(err, &refusal) {
		if errors.Is(err, errNoSession) {
			return &control.Error{Kind: control.Gone, Message: "The screen's session does not answer.", Next: "Look at the screen's status."}
		}
		return err
	}
	switch refusal.Kind {
	case dialhome.KindNotFound:
		return &control.Error{Kind: control.NotFound, Message: refusal.Message}
	case dialhome.KindState:
		return &control.Error{Kind: control.Gone, Message: "No desktop runs in this screen.", Next: "Wait until it is ready."}
	default:
		return &control.Error{Kind: control.Refused, Message: refusal.Message}
	}
}

func (c *command) adopt(files []*os.File, tty bool) error {
	conns := make([]*passedConn, len(files))
	var failure error
	for i, f := range files {
		conn, err := acceptPipe(f, tty)
		failure = errors.Join(failure, err)
		conns[i] = conn
	}
	if failure != nil {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
		return failure
	}
	if tty {
		c.terminal = conns[0]
		c.stdin, c.stdout = terminalInput{conns[0]}, conns[0]
		return nil
	}
	c.stdin, c.stdout, c.stderr = conns[0], conns[1], conns[2]
	return nil
}

// terminalInput ends input the way a person does: closing the terminal itself would
// take the output away too.
type terminalInput struct{ *passedConn }

func (t terminalInput) Close() error {
	_, err := t.Write([]byte{4}) // ^D, VEOF of termios(3)
	return err
}

func (c *command) Stdin() io.WriteCloser { return c.stdin }
func (c *command) Stdout() io.ReadCloser { return c.stdout }

// Stderr is a nil interface on a terminal, never a nil pointer in one.
func (c *command) Stderr() io.ReadCloser {
	if c.terminal != nil {
		return nil
	}
	return c.stderr
}

func (c *command) Resize(size control.TerminalSize) error {
	if c.terminal == nil {
		return nil
	}
	return c.terminal.setSize(size.Rows, size.Cols)
}

func (c *command) Wait() control.ExecResult {
	e := <-c.exited
	return control.ExecResult{ExitCode: e.Code, Signal: e.Signal}
}

// Kill ends the command's process group. A session that does not answer is ended by
// the plugin, and with it the command.
func (c *command) Kill() {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	request := dialhome.Signal{Command: c.id, Signal: int(unix.SIGKILL)}
	if _, _, err := c.supervisor.link.call(ctx, dialhome.OpSignal, request, 0); err != nil {
		c.supervisor.commandEnded(dialhome.Exited{Command: c.id, Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)})
	}
}

// awaitCommand registers who waits for a command; its end may have come before.
func (s *supervisor) awaitCommand(id uint64) chan dialhome.Exited {
	c := make(chan dialhome.Exited, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.early[id]; ok {
		delete(s.early, id)
		c <- e
		return c
	}
	s.commands[id] = c
	return c
}

// maxEarly bounds ends nobody has asked for yet: only those of commands whose answer
// is on its way.
const maxEarly = 64

func (s *supervisor) commandEnded(e dialhome.Exited) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.commands[e.Command]; ok {
		delete(s.commands, e.Command)
		c <- e // has room for the one
		return
	}
	if len(s.early) < maxEarly {
		s.early[e.Command] = e
	}
}
