// SPDX-License-Identifier: MPL-2.0

// Package session is the process inside an isolation that is the parent of one
// screen's desktop. It runs under the screen's own uid, dials its supervisor's socket,
// brings the desktop up on request, passes connected sockets out and ends when the
// desktop has ended. It outlives supervisors: it dials again until one answers.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// orphanLimit bounds how long a session without a desktop waits for its first
	// supervisor: a launcher that died in between must not leave a process behind.
	orphanLimit = 2 * time.Minute
	// stopGrace is how long TERM may take where nobody says otherwise (rule S9).
	stopGrace = 5 * time.Second
)

// Exit codes of the session process.
const (
	exitStopped = 0 // stopped on request
	exitFailed  = 1 // the desktop ended by itself, or never came up
	exitUsage   = 2
)

// session is the state of the process. One exists per process.
type session struct {
	dialPath string
	log      io.Writer
	reaper   *desktop.Reaper

	stopping context.Context // done when the session shall end
	stop     context.CancelFunc

	mu       sync.Mutex // guards all below
	conn     *dialhome.Conn
	state    dialhome.State
	plan     *dialhome.Plan
	desktop  *desktop.Desktop
	fence    *dialhome.Fence
	commands *commands
	exitCode int
}

// Main runs the session until its screen has ended and returns the exit code of the
// process. dialPath is the supervisor's socket as seen from inside the isolation.
func Main(dialPath string) int {
	log := newSink(os.Stdout)
	if err := desktop.PrepareProcess(); err != nil {
		fmt.Fprintf(log, "session: prepare process: %v\n", err)
		return exitFailed
	}
	s := newSession(dialPath, log)
	// TERM is the node shutting down or the isolation being stopped from outside.
	ctx, release := signal.NotifyContext(s.stopping, unix.SIGTERM, unix.SIGINT)
	defer release()
	go func() { _ = s.reaper.Run(context.WithoutCancel(ctx)) }()
	s.dialLoop(ctx)
	s.endDesktop(0, stopGrace)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exitCode
}

func newSession(dialPath string, log io.Writer) *session {
	s := &session{dialPath: dialPath, log: log, reaper: desktop.NewReaper(), state: dialhome.Idle}
	s.commands = newCommands(s.reaper)
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

// dialLoop keeps one connection to a supervisor until the session shall end.
func (s *session) dialLoop(ctx context.Context) {
	orphaned := time.AfterFunc(orphanLimit, func() { s.finish(exitFailed, "no supervisor answered") })
	defer orphaned.Stop()
	const shortest, longest = 20 * time.Millisecond, 2 * time.Second
	wait := shortest
	for ctx.Err() == nil {
		conn, err := dial(s.dialPath)
		if err == nil {
			wait = shortest
			err = s.serve(ctx, conn, orphaned)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !dialhome.IsClosed(err) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
			fmt.Fprintf(s.log, "session: %v\n", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, longest)
		}
	}
}

func dial(path string) (*dialhome.Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("dial supervisor: %w", err)
	}
	return dialhome.NewConn(c), nil
}

// serve answers one supervisor until it is gone or the session ends.
func (s *session) serve(ctx context.Context, conn *dialhome.Conn, orphaned *time.Timer) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	s.attach(conn)
	defer s.detach(conn)
	for {
		packet, files, err := conn.Receive()
		if err != nil {
			return err
		}
		orphaned.Stop() // a supervisor is there and in charge
		switch packet.Op {
		case dialhome.OpStart:
			go s.handleStart(ctx, conn, packet, files)
			continue // owns the files
		case dialhome.OpDial:
			go s.handleDial(ctx, conn, packet)
		case dialhome.OpExec:
			go s.handleExec(conn, packet)
		case dialhome.OpSignal:
			s.handleSignal(conn, packet)
		case dialhome.OpStop:
			go s.handleStop(conn, packet)
		default:
			reply(conn, packet.ID, nil, &dialhome.Error{Kind: dialhome.KindFailed, Message: "unknown operation"})
		}
		dialhome.CloseAll(files)
	}
}

// attach makes conn the one that events go to, and says what runs already.
func (s *session) attach(conn *dialhome.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	_ = conn.Send(dialhome.Packet{Event: dialhome.EventHello, Body: dialhome.Encode(s.describe())})
}

func (s *session) detach(conn *dialhome.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
	}
}

// describe needs s.mu.
func (s *session) describe() dialhome.Desktop {
	d := dialhome.Desktop{State: s.state, Fence: s.fence}
	if s.plan != nil {
		d.Display, d.Width, d.Height = s.plan.Display, s.plan.WidthPx, s.plan.HeightPx
	}
	if s.desktop != nil {
		d.XPID, d.XStart = xIdentity(s.desktop)
		d.Lines = boundedLines(s.desktop.LastLines())
	}
	return d
}

// emit sends an event to the supervisor there is; without one it is lost, and hello
// tells the next one how things stand.
func (s *session) emit(event dialhome.Event, body any) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Send(dialhome.Packet{Event: event, Body: dialhome.Encode(body)})
	}
}

// finish ends the session with the given code; the first call decides.
func (s *session) finish(code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Err() != nil {
		return
	}
	s.exitCode = code
	if reason != "" {
		fmt.Fprintf(s.log, "session: ending: %s\n", reason)
	}
	s.stop()
}

func reply(conn *dialhome.Conn, id uint64, body any, failure *dialhome.Error, files ...*os.File) {
	packet := dialhome.Packet{ID: id, OK: failure == nil, Err: failure}
	if failure == nil && body != nil {
		packet.Body = dialhome.Encode(body)
	}
	// A supervisor that is gone asks again after the next dial.
	_ = conn.Send(packet, files...)
}
