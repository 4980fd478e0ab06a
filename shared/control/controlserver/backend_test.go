// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// onlyStatus is the least a supervisor can do.
type onlyStatus struct{}

func (onlyStatus) Status(context.Context, Caller) (control.Status, error) {
	return control.Status{State: screen.Ready, Profile: "bot", Lease: lease.Public{Holder: lease.Agent, Epoch: 7}}, nil
}

// everything is a supervisor that can do all, with real programs behind exec.
type everything struct {
	onlyStatus
	ended chan struct{}

	mu      sync.Mutex // guards all below
	events  []control.Event
	changed chan struct{}
	callers []Caller
	stops   []control.StopRequest
	acted   []lease.ViewerID // who took and gave
	taking  int              // screenshots under way
	release chan struct{}
}

func newEverything() *everything {
	return &everything{ended: make(chan struct{}), changed: make(chan struct{}), release: make(chan struct{})}
}

func (e *everything) record(c Caller) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.callers = append(e.callers, c)
}

func (e *everything) publish(events ...control.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, events...)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *everything) EventsAfter(ctx context.Context, since uint64) ([]control.Event, error) {
	for {
		e.mu.Lock()
		changed := e.changed
		for i, event := range e.events {
			if event.Seq > since {
				e.mu.Unlock()
				return e.events[i:], nil
			}
		}
		e.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *everything) Lease(context.Context) (lease.Public, error) {
	return lease.Public{Holder: lease.Human, Viewer: "0123456789ab", Epoch: 9}, nil
}

func (e *everything) Screenshot(ctx context.Context, caller Caller, req control.ScreenshotRequest) (control.Screenshot, error) {
	e.record(caller)
	if req.Scale == 0.5 { // takes as long as the test wants
		e.mu.Lock()
		e.taking++
		if e.taking > 1 {
			e.mu.Unlock()
			return control.Screenshot{}, errors.New("two pictures at once")
		}
		e.mu.Unlock()
		defer func() { e.mu.Lock(); e.taking--; e.mu.Unlock() }()
		select {
		case <-e.release:
		case <-ctx.Done():
			return control.Screenshot{}, ctx.Err()
		}
	}
	return control.Screenshot{Format: req.Format, Data: []byte("pixels of " + req.Rect.String()), Epoch: 9, Hash: "abc"}, nil
}

func (e *everything) Stop(_ context.Context, caller Caller, req control.StopRequest) error {
	e.record(caller)
	if !req.Force {
		return &control.Error{Kind: control.Held, Message: "A person holds the screen.", Next: "Use force.", Holder: lease.Human, Epoch: 9}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stops = append(e.stops, req)
	return nil
}

func (e *everything) Signal(context.Context, Caller, control.SignalRequest) error { return nil }

func (e *everything) Wait(ctx context.Context) (control.Exit, error) {
	select {
	case <-e.ended:
		return control.Exit{Code: 3, Reason: screen.Distrust("Xvnc\x1b[31m died")}, nil
	case <-ctx.Done():
		return control.Exit{}, ctx.Err()
	}
}

func (e *everything) Stats(context.Context) (control.Stats, error) {
	return control.Stats{}, errors.New("read cgroup: no such file")
}

func (e *everything) Exec(_ context.Context, _ Caller, req control.ExecRequest) (Process, error) {
	if req.Argv[0] == "forbidden" {
		return nil, &control.Error{Kind: control.Refused, Message: "Shells are off."}
	}
	return startProgram(req.Argv)
}

// program is a real process on pipes.
type program struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File
	size           chan control.TerminalSize
	ended          chan struct{}
}

func startProgram(argv []string) (*program, error) {
	p := &program{cmd: exec.Command(argv[0], argv[1:]...), size: make(chan control.TerminalSize, 8), ended: make(chan struct{})}
	var theirs [3]*os.File
	var err error
	if theirs[0], p.stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stdout, theirs[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stderr, theirs[2], err = os.Pipe(); err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = p.cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	return p, err
}

func (p *program) Stdin() io.WriteCloser { return p.stdin }
func (p *program) Stdout() io.ReadCloser { return p.stdout }
func (p *program) Stderr() io.ReadCloser { return p.stderr }

// Kill ends the program's group, children included.
func (p *program) Kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

func (p *program) Resize(size control.TerminalSize) error {
	p.size <- size
	return nil
}

func (p *program) Wait() control.ExecResult {
	p.cmd.Wait()
	close(p.ended)
	if status := p.cmd.ProcessState; status.ExitCode() >= 0 {
		return control.ExecResult{ExitCode: status.ExitCode()}
	}
	return control.ExecResult{ExitCode: -1, Signal: 9}
}

// open serves backend through a door of the role and returns its client.
func open(t *testing.T, backend Backend, role screen.Role) *control.Client {
	t.Helper()
	_, path := openSocket(t, backend, role)
	c := control.NewClient(control.Unix(path))
	t.Cleanup(c.Close)
	return c
}

func openSocket(t *testing.T, backend Backend, role screen.Role) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(backend, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln, role) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, path
}
