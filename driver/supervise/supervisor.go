// SPDX-License-Identifier: MPL-2.0

// Package supervise is the process that owns what happens on one screen: it commands
// the session, serves the control API to its doors and remembers how the screen
// ended. It is unprivileged, holds its directory and sockets as descriptors, and may
// die at any time: the plugin starts another one, which adopts the session.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// adoptLimit is how long a session may take to dial a new supervisor.
const adoptLimit = 15 * time.Second

// supervisor is one screen's state. Locks are taken for moments, never across I/O.
type supervisor struct {
	config  Config
	log     hclog.Logger
	dir     *os.Root
	link    *link
	journal *journal
	ended   chan struct{} // closed once exit is final

	mu       sync.Mutex // guards all below
	state    screen.State
	since    time.Time
	reason   screen.Untrusted
	fence    control.Fence
	record   record
	stopping bool
	died     string // what the session said before it ended
	failure  *dialhome.Error
	commands map[uint64]chan dialhome.Exited
	early    map[uint64]dialhome.Exited // ends that arrived before somebody waited
}

func newSupervisor(config Config, dir *os.Root, log hclog.Logger) (*supervisor, error) {
	r, err := loadRecord(dir, config.Instance)
	if err != nil {
		log.Warn("the screen's record is unreadable; going on without it", "error", err)
	}
	s := &supervisor{
		config: config, log: log, dir: dir, journal: newJournal(), record: r,
		ended: make(chan struct{}), state: screen.Starting, since: time.Now().UTC(),
		fence:    control.Fence{Mode: control.Advisory, Reason: "the self-test has not run yet"},
		commands: map[uint64]chan dialhome.Exited{}, early: map[uint64]dialhome.Exited{},
	}
	s.link = newLink(config.Session, log, s.onEvent)
	return s, nil
}

// run follows the session to its end.
func (s *supervisor) run(ctx context.Context) error {
	session, err := process.Open(s.config.Session)
	if errors.Is(err, process.ErrGone) {
		s.end()
		return nil
	}
	if err != nil {
		return fmt.Errorf("supervise screen: %w", err)
	}
	defer session.Close()
	if s.config.Plan != nil {
		go s.start(ctx)
	} else {
		go s.awaitAdoption(ctx)
	}
	select {
	case <-session.Done():
		s.end()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start brings the desktop up; a failure ends the session, which ends the screen.
func (s *supervisor) start(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, s.config.Plan.Deadline+adoptLimit)
	defer cancel()
	desktop, err := s.askStart(bounded)
	// The plan holds the job's environment; nobody needs it here any more.
	s.mu.Lock()
	s.config.Plan = nil
	s.mu.Unlock()
	if err != nil {
		s.failStart(ctx, err)
		return
	}
	s.becomeReady(desktop)
}

func (s *supervisor) askStart(ctx context.Context) (dialhome.Desktop, error) {
	memfd, err := planFile(s.config.Plan)
	if err != nil {
		return dialhome.Desktop{}, err
	}
	defer memfd.Close()
	packet, _, err := s.link.call(ctx, dialhome.OpStart, dialhome.Start{HasPlan: true}, 0, memfd)
	if err != nil {
		return dialhome.Desktop{}, err
	}
	var desktop dialhome.Desktop
	if err := dialhome.Decode(packet.Body, &desktop); err != nil {
		return dialhome.Desktop{}, err
	}
	return desktop, nil
}

func planFile(plan *dialhome.Plan) (*os.File, error) {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("pass plan: %w", err)
	}
	f := os.NewFile(uintptr(fd), "plan")
	if _, err := f.Write(dialhome.Encode(plan)); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("pass plan: %w", err)
	}
	return f, nil
}

// failStart remembers why. A session that refused ends by itself; one that did not
// answer is asked to.
func (s *supervisor) failStart(ctx context.Context, err error) {
	var refusal *dialhome.Error
	answered := errors.As(err, &refusal)
	if !answered {
		refusal = &dialhome.Error{Kind: dialhome.KindFailed, Message: err.Error()}
	}
	s.mu.Lock()
	s.failure = refusal
	s.mu.Unlock()
	if !answered {
		s.stopSession(ctx, 0, time.Second)
	}
}

func (s *supervisor) becomeReady(d dialhome.Desktop) {
	s.mu.Lock()
	s.record.XServer, s.record.Display, s.record.Ready = d.XServer(), d.Display, true
	r := s.record
	if d.Fence != nil {
		s.fence = fenceOf(*d.Fence)
	}
	s.mu.Unlock()
	if err := r.save(s.dir); err != nil {
		s.log.Error("cannot save the screen's record", "error", err)
	}
	s.enter(screen.Ready, control.EventReady, "")
}

// awaitAdoption gives the session of a dead supervisor time to dial this one. Its hello
// is handled in onEvent.
func (s *supervisor) awaitAdoption(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, adoptLimit)
	defer cancel()
	for {
		events, changed := s.journal.after(0)
		if len(events) > 0 {
			return
		}
		select {
		case <-changed:
		case <-s.ended:
			return
		case <-limit.Done():
			if ctx.Err() == nil {
				s.log.Error("the session has not dialled this supervisor", "pid", s.config.Session.PID, "waited", adoptLimit)
			}
			return
		}
	}
}

// onEvent handles what the session reports. Its words are untrusted.
func (s *supervisor) onEvent(p dialhome.Packet) {
	switch p.Event {
	case dialhome.EventHello:
		var d dialhome.Desktop
		if dialhome.Decode(p.Body, &d) == nil {
			s.onHello(d)
		}
	case dialhome.EventFence:
		var f dialhome.Fence
		if dialhome.Decode(p.Body, &f) == nil {
			s.mu.Lock()
			s.fence = fenceOf(f)
			s.mu.Unlock()
		}
	case dialhome.EventDied:
		var n dialhome.Note
		if dialhome.Decode(p.Body, &n) == nil {
			s.mu.Lock()
			s.died = n.Text
			s.mu.Unlock()
		}
	case dialhome.EventRestarted, dialhome.EventGaveUp:
		var n dialhome.Note
		if dialhome.Decode(p.Body, &n) == nil {
			s.note(control.EventRestarted, n.Program+": "+n.Text)
		}
	case dialhome.EventExited:
		var e dialhome.Exited
		if dialhome.Decode(p.Body, &e) == nil {
			s.commandEnded(e)
		}
	}
}

// onHello adopts a desktop that runs already. What runs must be the X server this
// run's record names: a session cannot show another one (P10a).
func (s *supervisor) onHello(d dialhome.Desktop) {
	s.mu.Lock()
	known := s.record
	adopting := s.config.Plan == nil && s.state == screen.Starting
	s.mu.Unlock()
	if !adopting || d.State != dialhome.Running {
		return
	}
	if known.Ready && s.config.SharedPIDs && d.XServer() != known.XServer {
		s.log.Error("the session shows another X server than this screen's", "recorded", known.XServer.PID, "shown", d.XPID)
		return
	}
	s.becomeReady(d)
}

func fenceOf(f dialhome.Fence) control.Fence {
	if f.Enforced {
		return control.Fence{Mode: control.Enforced}
	}
	return control.Fence{Mode: control.Advisory, Reason: screen.Distrust(f.Reason).String()}
}

// enter changes the state and says so.
func (s *supervisor) enter(state screen.State, name control.EventName, reason string) {
	s.mu.Lock()
	s.state, s.since, s.reason = state, time.Now().UTC(), screen.Distrust(reason)
	e := s.event(name)
	s.mu.Unlock()
	s.journal.add(e)
}

// note publishes an event that changes no state.
func (s *supervisor) note(name control.EventName, reason string) {
	s.mu.Lock()
	e := s.event(name)
	e.Reason = screen.Distrust(reason)
	s.mu.Unlock()
	s.journal.add(e)
}

// event needs s.mu.
func (s *supervisor) event(name control.EventName) control.Event {
	return control.Event{
		Name: name, State: s.state, Profile: s.config.Profile, Isolation: s.config.Isolation,
		ImageDigest: s.config.ImageDigest, Holder: lease.Agent, Fence: s.fence.Mode, Reason: s.reason,
	}
}

// stopSession asks the session to end the desktop and itself. Where it does not, the
// plugin kills it from outside.
func (s *supervisor) stopSession(ctx context.Context, first int, grace time.Duration) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, grace+10*time.Second)
	defer cancel()
	if _, _, err := s.link.call(bounded, dialhome.OpStop, dialhome.Stop{Signal: first, Grace: grace}, 0); err != nil {
		s.log.Warn("the session did not answer the stop", "error", err)
	}
}

// end computes how the screen ended, once, and keeps it for whoever asks, also for the
// next supervisor.
func (s *supervisor) end() {
	s.mu.Lock()
	if s.record.Exit == nil {
		exit := s.exit()
		s.record.Exit = &exit
	}
	r := s.record
	state := screen.Failed
	if r.Exit.Code == 0 {
		state = screen.Stopped
	}
	waiting := s.commands
	s.commands = map[uint64]chan dialhome.Exited{}
	s.mu.Unlock()
	for id, c := range waiting {
		c <- dialhome.Exited{Command: id, Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)}
	}
	if err := r.save(s.dir); err != nil {
		s.log.Error("cannot save how the screen ended", "error", err)
	}
	s.enter(state, control.EventState, r.Exit.Reason.String())
	close(s.ended)
}

// exit needs s.mu.
func (s *supervisor) exit() control.Exit {
	switch {
	case s.failure != nil:
		return control.Exit{Code: 1, Cause: string(s.failure.Kind), Reason: screen.Distrust(s.failure.Message)}
	case s.died != "":
		return control.Exit{Code: 1, Reason: screen.Distrust(s.died)}
	case s.stopping:
		return control.Exit{Code: 0}
	default:
		// Only the parent sees the status; the plugin completes this where it is the parent.
		return control.Exit{Code: 1, Lost: true, Reason: screen.Distrust("the session process was killed from outside or crashed")}
	}
}
