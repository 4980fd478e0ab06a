// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// askTimeout bounds a question to the session that it answers at once.
	askTimeout = 10 * time.Second
	// killTimeout is how long a session may take to report a command that was killed.
	killTimeout = 5 * time.Second
	sigKill     = int(unix.SIGKILL)
)

// command is a program that the session runs for a caller of exec. Its output is
// carried here, by the supervisor: the plugin, which is root, never touches bytes
// from inside.
type command struct {
	link   *link
	line   *line
	id     uint64
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr io.ReadCloser // nil on a terminal
	resize func(control.TerminalSize) error

	exited   chan dialhome.Exited
	patience time.Duration // how long a session may take to report a kill
	killOnce sync.Once
	lost     chan struct{} // closed when its end is not waited for any more
	cutOnce  sync.Once
	cut      chan struct{} // closed when a takeover has ended it
	forget   func()        // drops it from those that a takeover ends
	unused   func()        // tells that it does not use the screen any more
}

// Exec starts a command inside the session. While a person has control, and when one
// takes it, there is none without force (X19, X20).
func (s *supervisor) Exec(ctx context.Context, caller controlserver.Caller, req control.ExecRequest) (controlserver.Process, error) {
	request, err := execOf(req)
	if err != nil {
		return nil, err
	}
	var seen lease.Epoch
	if req.Force && s.holds().Held() {
		s.auditAct(audit.Forced, cameBy(caller), "", "")
	}
	if !req.Force {
		if seen, err = s.beginFenced(); err != nil {
			return nil, err
		}
	}
	request.Marked = !req.Force
	end, err := s.beginCommand(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := &command{
		link: s.link, exited: make(chan dialhome.Exited, 1), patience: s.patience, lost: make(chan struct{}),
		cut: make(chan struct{}), forget: func() {}, unused: end,
	}
	if req.TTY {
		err = s.startOnTerminal(bounded, c, request)
	} else {
		err = s.startOnPipes(bounded, c, request)
	}
	if err != nil {
		end()
		return nil, refusalOf("run the command", err)
	}
	if !req.Force {
		if err := s.fenceCommand(c, seen); err != nil {
			end()
			return nil, err
		}
	}
	return c, nil
}

func execOf(req control.ExecRequest) (dialhome.Exec, error) {
	request := dialhome.Exec{Argv: req.Argv, Dir: req.Dir, TTY: req.TTY, GUI: req.GUI}
	if req.TTY {
		request.Env = append(request.Env, "TERM=xterm-256color")
		if req.Size != nil { // set by the session: the command must not see another one first
			request.Rows, request.Columns = req.Size.Rows, req.Size.Cols
		}
	}
	var faults screen.Faults
	for name, value := range req.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			faults.Add("env", name, "must be names without = and values without NUL")
		}
		request.Env = append(request.Env, name+"="+value)
	}
	for _, arg := range append([]string{req.Dir}, req.Argv...) {
		if strings.ContainsRune(arg, 0) {
			faults.Add("argv", arg, "must hold no NUL, nor may cwd")
		}
	}
	if err := faults.Err(); err != nil {
		return request, &control.Error{Kind: control.BadRequest, Message: "Cannot run the command: " + err.Error() + "."}
	}
	return request, nil
}

// startOnPipes connects the command to pipes. Their near ends never leave this process:
// nobody inside can make them block, linger or read beside us (X10).
func (s *supervisor) startOnPipes(ctx context.Context, c *command, request dialhome.Exec) error {
	pipes, err := newPipes()
	if err != nil {
		return err
	}
	a, err := s.link.call(ctx, question{op: dialhome.OpExec, body: request, files: pipes.far[:], exited: c.exited})
	pipes.closeFar()
	if err != nil {
		pipes.closeNear()
		return err
	}
	c.id, c.line = a.id, a.line
	c.stdin, c.stdout, c.stderr = pipes.near[0], pipes.near[1], pipes.near[2]
	return nil
}

// startOnTerminal takes the master of a terminal that the session made: its slave has
// to be a terminal of the isolation's own.
func (s *supervisor) startOnTerminal(ctx context.Context, c *command, request dialhome.Exec) error {
	slot, err := s.passed.acquire()
	if err != nil {
		return err
	}
	a, err := s.link.call(ctx, question{op: dialhome.OpExec, body: request, want: 1, exited: c.exited})
	if err != nil {
		slot.release()
		return err
	}
	c.id, c.line = a.id, a.line
	t, err := acceptTerminal(a.passed[0], slot)
	if err != nil {
		s.link.accuse(a.line, err)
		return err
	}
	c.stdin, c.stdout, c.resize = t.input(), t.output(), t.setSize
	return nil
}

// pipes are stdin, stdout and stderr of a command.
type pipes struct{ near, far [dialhome.ExecFiles]*os.File }

func newPipes() (*pipes, error) {
	var p pipes
	for i := range p.near {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeNear()
			p.closeFar()
			return nil, err
		}
		p.near[i], p.far[i] = r, w
		if i == 0 {
			p.near[i], p.far[i] = w, r
		}
		if err := forCommand(p.far[i]); err != nil {
			p.closeNear()
			p.closeFar()
			return nil, err
		}
	}
	return &p, nil
}

// forCommand makes a far end what programs expect of one. It blocks: Go makes its pipes
// non-blocking, and cat ends with "Resource temporarily unavailable" on such a one. And
// the command, which has another uid, may open /dev/stdout anew; only who holds the pipe
// already can.
func forCommand(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = unix.SetNonblock(int(fd), false) })
	return errors.Join(err, failure, f.Chmod(0o666))
}

func (p *pipes) closeNear() { closeFiles(p.near[:]) }
func (p *pipes) closeFar()  { closeFiles(p.far[:]) }

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (c *command) Stdin() io.WriteCloser { return c.stdin }
func (c *command) Stdout() io.ReadCloser { return c.stdout }
func (c *command) Stderr() io.ReadCloser { return c.stderr }

// Resize does nothing without a terminal.
func (c *command) Resize(size control.TerminalSize) error {
	if c.resize == nil {
		return nil
	}
	return c.resize(size)
}

// Wait returns what the session reports. A command ends with the session's connection,
// and one that was killed counts as ended even where the session does not say so.
func (c *command) Wait() control.ExecResult {
	defer c.forget()
	defer c.unused()
	killed := dialhome.Exited{Code: 128 + sigKill, Signal: sigKill}
	select {
	case e := <-c.exited:
		return resultOf(e)
	case <-c.line.gone:
	case <-c.lost:
	case <-c.cut:
		result := resultOf(killed)
		over := control.TakenOver("the command")
		result.Kind, result.Error = over.Kind, over.Error()
		return result
	}
	select { // what came last still counts
	case e := <-c.exited:
		return resultOf(e)
	default:
		return resultOf(killed)
	}
}

// resultOf keeps what a hostile session says within what there can be.
func resultOf(e dialhome.Exited) control.ExecResult {
	const highest = 255
	if e.Code < 0 || e.Code > highest {
		e.Code = highest
	}
	if e.Signal < 0 || e.Signal > maxSignal {
		e.Signal = 0
	}
	return control.ExecResult{ExitCode: e.Code, Signal: e.Signal}
}

// Kill ends the command's process group.
func (c *command) Kill() {
	c.killOnce.Do(func() {
		c.link.kill(c.line, c.id)
		time.AfterFunc(c.patience, func() {
			c.link.forget(c.line, c.id)
			close(c.lost)
		})
	})
}

// refusalOf tells a caller what it can do about a refusal of the session, whose words
// are untrusted (X32).
func refusalOf(what string, err error) error {
	var refusal *dialhome.Error
	switch {
	case errors.Is(err, errNoSession):
		return &control.Error{Kind: control.Gone, Message: "The screen's session does not answer.", Next: "Look at the screen's status."}
	case errors.Is(err, errBusy):
		return &control.Error{Kind: control.Busy, Message: "Too much is asked of this screen at once.", Next: "Try again in a moment."}
	case errors.Is(err, dialhome.ErrTooLong):
		return &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("Cannot %s: arguments and environment have to fit into %d bytes.", what, dialhome.MaxPacket),
			Next:    "Put them into a file or send them to its input."}
	case !errors.As(err, &refusal):
		return fmt.Errorf("%s: %w", what, err)
	}
	words := screen.Distrust(refusal.Message).String()
	switch refusal.Kind {
	case dialhome.KindNotFound:
		return &control.Error{Kind: control.NotFound, Message: words}
	case dialhome.KindState:
		return &control.Error{Kind: control.Gone, Message: "No desktop runs in this screen.", Next: "Wait until it is ready."}
	default:
		return &control.Error{Kind: control.Refused, Message: fmt.Sprintf("Cannot %s: %s.", what, words)}
	}
}
