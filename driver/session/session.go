// SPDX-License-Identifier: MPL-2.0

// Package session is the process inside an isolation that is the parent of one
// screen's desktop. It runs under the screen's own uid, dials its supervisor's socket,
// brings the desktop up on request, passes connected sockets out and ends when the
// desktop has ended. It outlives supervisors: it dials again until one answers.
package session

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// orphanLimit bounds how long a session without a desktop waits for its first
	// supervisor: a launcher that died in between must not leave a process behind.
	orphanLimit = 2 * time.Minute
	// stopGrace is how long TERM may take where nobody says otherwise (rule S9).
	stopGrace = 5 * time.Second
	// shortestWait and longestWait bound the pause between two dials.
	shortestWait = 20 * time.Millisecond
	longestWait  = 2 * time.Second
)

// Exit codes of the session process.
const (
	exitStopped = 0 // stopped on request
	exitFailed  = 1 // the desktop ended by itself, or never came up
)

// session is the state of the process. One exists per process.
type session struct {
	dialPath string
	log      io.Writer
	reaper   *desktop.Reaper
	patience time.Duration // for the first supervisor
	copied   *trailing     // says that a program copied something

	stopping context.Context // done when the session shall end
	stop     context.CancelFunc

	mu      sync.Mutex // guards all below; never held across I/O
	link    *link      // nil while no supervisor is connected
	state   dialhome.State
	plan    *dialhome.Plan
	start   *pendingStart // nil unless a start runs
	desktop *desktop.Desktop
	fence   *dialhome.Fence
	browser *browser.Browser // nil without a desktop, and where the job wants none
	opening bool             // the opener is there
	// decided says that exitCode is final: the first reason to end counts.
	decided  bool
	exitCode int
}

// copyPause is how often the supervisor hears that programs copied something.
const copyPause = 200 * time.Millisecond

// Main runs the session until its screen has ended and returns the exit code of the
// process. dialPath is the supervisor's socket as seen from inside the isolation.
func Main(dialPath string) int {
	log := newSink(os.Stdout)
	if err := desktop.PrepareProcess(); err != nil {
		fmt.Fprintf(log, "session: prepare process: %v\n", err)
		return exitFailed
	}
	reserveThreads(spareThreads)
	s := newSession(dialPath, log)
	go func() { _ = s.reaper.Run(context.Background()) }()
	go s.endAtSignal()
	return s.run()
}

// spareThreads is how many system calls can block at once before the process needs a
// thread more: in a screen that is full of processes there is none to be had, and Go's
// runtime ends a process that gets none (DOC-01).
const spareThreads = 12

// reserveThreads has the runtime make n threads, which it keeps.
func reserveThreads(n int) {
	var ready, over sync.WaitGroup
	ready.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait() // so that no two share one
		})
	}
	over.Wait()
}

func newSession(dialPath string, log io.Writer) *session {
	s := &session{dialPath: dialPath, log: log, reaper: desktop.NewReaper(), patience: orphanLimit, state: dialhome.Idle}
	s.copied = &trailing{pause: copyPause, f: func() { s.emit(dialhome.EventClipboard, dialhome.Note{}) }}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

// run serves supervisors until the session shall end, and then leaves nothing behind.
func (s *session) run() int {
	s.dialLoop(s.stopping)
	s.endDesktop(0, stopGrace)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exitCode
}

// endAtSignal ends the session when the node or the isolation is stopped from outside.
func (s *session) endAtSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	select {
	case sig := <-signals:
		s.fail(fmt.Sprintf("the session was ended from outside (%s)", unix.SignalName(sig.(unix.Signal))))
	case <-s.stopping.Done():
	}
}

// dialLoop keeps one connection to a supervisor until the session shall end.
func (s *session) dialLoop(ctx context.Context) {
	orphaned := time.AfterFunc(s.patience, func() { s.fail("no supervisor answered") })
	defer orphaned.Stop()
	wait := shortestWait
	for ctx.Err() == nil {
		served, err := s.dialOnce(ctx, orphaned)
		if err != nil && !isAbsent(err) && ctx.Err() == nil {
			fmt.Fprintf(s.log, "session: %v\n", err)
		}
		if served {
			wait = shortestWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, longestWait)
		}
	}
}

// dialOnce serves one supervisor, if there is one; served says that it asked for
// something. One that accepts and says nothing has refused us.
func (s *session) dialOnce(ctx context.Context, orphaned *time.Timer) (served bool, err error) {
	conn, err := dial(s.dialPath)
	if err != nil {
		return false, err
	}
	return s.serve(ctx, conn, orphaned)
}

// serve answers one supervisor until it is gone or the session ends. The commands it
// asked for end with it: nobody reads them any more.
func (s *session) serve(ctx context.Context, conn *dialhome.Conn, orphaned *time.Timer) (served bool, err error) {
	l := newLink(conn, newCommands(s.reaper))
	ctx, cancel := context.WithCancel(ctx)
	s.attach(l)
	go l.run(ctx)
	defer func() {
		s.detach(l)
		cancel()
		<-l.done
		l.commands.end()
	}()
	for {
		packet, passed, err := conn.Receive()
		if err != nil {
			return served, err
		}
		served = true
		orphaned.Stop() // a supervisor is there and in charge
		s.handle(l, packet, passed)
	}
}

// handle owns what was passed. What takes time goes on beside the next packet.
func (s *session) handle(l *link, packet dialhome.Packet, passed []*dialhome.Descriptor) {
	switch packet.Op {
	case dialhome.OpStart:
		go s.handleStart(l, packet, passed)
		return
	case dialhome.OpExec:
		go s.handleExec(l, packet, passed)
		return
	case dialhome.OpWindows, dialhome.OpPointer, dialhome.OpFocus, dialhome.OpEndClient, dialhome.OpReadClipboard, dialhome.OpSetClipboard, dialhome.OpWipeClipboard:
		go s.handleDesk(l, packet, passed)
		return
	case dialhome.OpDial:
		go s.handleDial(l, packet)
	case dialhome.OpBrowserPage:
		go s.handleBrowserPage(l, packet)
	case dialhome.OpBrowserRenew:
		go s.handleBrowserRenew(l, packet)
	case dialhome.OpBrowserOpen:
		go s.handleBrowserOpen(l, packet)
	case dialhome.OpBrowserClose:
		go s.handleBrowserClose(l, packet)
	case dialhome.OpSignal:
		s.handleSignal(l, packet)
	case dialhome.OpSleep:
		go s.handleSleep(l, packet)
	case dialhome.OpClear:
		go s.handleClear(l, packet)
	case dialhome.OpStop:
		go s.handleStop(l, packet)
	default:
		l.reply(packet.ID, nil, &dialhome.Error{Kind: dialhome.KindFailed, Message: "unknown operation"})
	}
	dialhome.CloseAll(passed)
}

// attach makes l the one that events go to; the first packet on it says what runs
// already.
func (s *session) attach(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = l
	l.post(dialhome.Packet{Event: dialhome.EventHello, Body: dialhome.Encode(s.describe())})
}

func (s *session) detach(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
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
	if s.browser != nil {
		b := browserOf(s.browser.State())
		d.Browser = &b
	}
	return d
}

// emit sends an event to the supervisor there is; without one it is lost, and hello
// tells the next one how things stand.
func (s *session) emit(event dialhome.Event, body any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link.post(dialhome.Packet{Event: event, Body: dialhome.Encode(body)})
	}
}

// decide fixes how the session ends; false says that something else did before.
func (s *session) decide(code int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decided {
		return false
	}
	s.decided, s.exitCode = true, code
	return true
}

// fail ends the session with a reason, unless it is ending already. Supervisor and log
// hear it.
func (s *session) fail(reason string) {
	if !s.decide(exitFailed) {
		return
	}
	fmt.Fprintf(s.log, "session: ending: %s\n", reason)
	s.emit(dialhome.EventDied, dialhome.Note{Text: bounded(reason)})
	s.stop()
}
