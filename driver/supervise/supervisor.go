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

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// adoptLimit is how long a session may take to dial a new supervisor.
	adoptLimit = 15 * time.Second
	// lastWordsLimit is how long the link of a dead session is still read.
	lastWordsLimit = time.Second
	// notesPerSecond and noteBurst bound the events that change no state: a session
	// must not push those that do out of the journal (X25).
	notesPerSecond, noteBurst = 1.0 / 30, 10
)

// supervisor is one screen's state. Locks are taken for moments, never across I/O.
type supervisor struct {
	config   Config
	adopting bool // the session has its plan from another supervisor
	log      hclog.Logger
	dir      *os.Root
	link     *link
	journal  *journal
	keeper   *lease.Keeper
	relay    *relay.Relay // all input to the screen goes through it
	tickets  *ticket.Store
	viewer   viewerDoor
	asks     *asks
	handoff  handoff
	clip     clipboard
	copies   *bucket // of what is sent to the holder
	trail    *trail
	brake    *cgroup.Brake // nil: the desktop cannot be frozen
	refused  func() uint64 // how many calls the API has refused
	passed   slots
	notes    *bucket
	patience time.Duration         // for a session to report a command that was killed
	adopted  chan dialhome.Desktop // has room for one: what an adopted session shows
	ended    chan struct{}         // closed once the exit is final

	turn    chan struct{} // has room for whoever ends or starts the desktop
	saving  sync.Mutex    // held across a save: the newest record lands last
	showing sync.Mutex    // held while viewers are told of the asks: the newest are told last

	mu       sync.Mutex // guards all below
	state    screen.State
	since    time.Time
	reason   screen.Untrusted
	fence    control.Fence
	record   record
	stopping bool
	asking   bool                  // a stop is being asked for
	died     string                // what the session said before it ended
	failure  *dialhome.Error       // why there is no desktop
	doorLost bool                  // the path of the agent's socket leads elsewhere
	commands map[*command]struct{} // those that a takeover ends
	use      use                   // of the screen
	counts   control.Counts        // those that are counted here
	thief    dialhome.EndClient    // the X client that took the focus from the person
	waking   *waking               // nil unless the desktop is being started again
	browser  *control.Browser      // as the session says; nil: it has said nothing yet
	resting  string                // why the screen was stopped, where nobody asked
	// browsing are the agent's connections to the browser, which a takeover cuts. It waits
	// for cutLimit until the browser has ended what the agent attached.
	browsing map[*browsing]struct{}
	cutLimit time.Duration
	// warned is the hold whose person was asked whether to hand back with a password.
	warned lease.Epoch
	// auditTrouble is why the last line was not written down.
	auditTrouble error
}

func newSupervisor(config Config, dir *os.Root, log hclog.Logger) (*supervisor, error) {
	r, exists, err := loadRecord(dir, config.Instance)
	if err != nil {
		log.Warn("the screen's record is unreadable; going on without it", "error", err)
	}
	r.Events = firstNumber(time.Now(), r.Events)
	s := &supervisor{
		config: config, adopting: config.Plan == nil, log: log, dir: dir,
		journal: newJournal(r.Events), passed: newSlots(), notes: newBucket(notesPerSecond, noteBurst), copies: newBucket(copiesPerSecond, copyBurst), patience: killTimeout,
		adopted: make(chan dialhome.Desktop, 1), ended: make(chan struct{}),
		state: screen.Starting, since: time.Now().UTC(), record: r,
		fence:   control.Fence{Mode: control.Advisory, Reason: "the self-test has not run yet"},
		refused: func() uint64 { return 0 },
		turn:    make(chan struct{}, 1), use: use{last: time.Now()},
		commands: map[*command]struct{}{}, browsing: map[*browsing]struct{}{}, cutLimit: cutTimeout, asks: newAsks(), trail: newTrail(dir),
	}
	s.link = newLink(config.Session, log, s.onEvent)
	if err := s.openLease(exists); err != nil {
		return nil, err
	}
	if err := s.asks.load(dir, config.Instance, s.holds(), time.Now()); err != nil {
		log.Warn("what the agent asked for is forgotten", "error", err)
	}
	s.viewer = newViewerDoor(&s.config)
	s.openRelay()
	s.showAsks()
	s.auditBegin()
	return s, nil
}

// run follows the session to its end, or to that of ctx.
func (s *supervisor) run(ctx context.Context) error {
	s.save()
	session, err := process.Open(s.config.Session)
	if errors.Is(err, process.ErrGone) {
		s.link.finish(lastWordsLimit) // it may have dialled and died meanwhile
		s.end()
		return nil
	}
	if err != nil {
		return fmt.Errorf("supervise screen: %w", err)
	}
	defer session.Close()
	begin := s.start
	if s.adopting {
		begin = s.adopt
	}
	var begun sync.WaitGroup
	begun.Go(func() { begin(ctx) })
	select {
	case <-session.Done():
		s.link.finish(lastWordsLimit)
		begun.Wait() // the link is closed, so it ends now; it may know the reason
		s.end()
	case <-ctx.Done():
		s.link.finish(0)
		begun.Wait()
	}
	return nil
}

// start brings the desktop up; a failure ends the session, which ends the screen.
func (s *supervisor) start(ctx context.Context) {
	if s.viewer.trouble != nil { // a bad job is refused, not served in part
		s.failStart(s.viewer.trouble)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Plan.Deadline+adoptLimit)
	defer cancel()
	began := time.Now()
	desktop, err := s.askStart(bounded)
	// The plan holds the job's environment; nobody needs it here any more.
	s.config.Plan = nil
	if err == nil {
		err = s.becomeReady(bounded, desktop)
	}
	if err == nil {
		s.count(func(c *control.Counts) { c.StartNs = time.Since(began) })
		go s.giveBack() // what a start needed is most of what a supervisor would keep
	}
	if err != nil && ctx.Err() == nil {
		s.failStart(err)
	}
}

func (s *supervisor) askStart(ctx context.Context) (dialhome.Desktop, error) {
	memfd, err := planFile(s.config.Plan)
	if err != nil {
		return dialhome.Desktop{}, err
	}
	defer memfd.Close()
	return s.startDesktop(ctx, question{body: dialhome.Start{HasPlan: true}, files: []*os.File{memfd}})
}

// startDesktop asks the session for the desktop and returns what came up.
func (s *supervisor) startDesktop(ctx context.Context, q question) (dialhome.Desktop, error) {
	q.op = dialhome.OpStart
	a, err := s.link.call(ctx, q)
	if err != nil {
		return dialhome.Desktop{}, err
	}
	var desktop dialhome.Desktop
	if err := dialhome.Decode(a.packet.Body, &desktop); err != nil {
		return dialhome.Desktop{}, err
	}
	return desktop, nil
}

func planFile(plan *dialhome.Plan) (*os.File, error) {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
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
// answer, or not as it must, is asked to.
func (s *supervisor) failStart(err error) {
	if errors.Is(err, errNoSession) && !s.config.Session.Alive() {
		return // its end says why
	}
	var refusal *dialhome.Error
	answered := errors.As(err, &refusal)
	if !answered {
		refusal = &dialhome.Error{Kind: dialhome.KindFailed, Message: err.Error()}
	}
	s.mu.Lock()
	if !s.stopping { // else it has been called off
		s.failure = refusal
	}
	s.mu.Unlock()
	s.log.Error("the desktop did not start", "reason", screen.Distrust(refusal.Message).String())
	if !answered && s.beginStop() {
		s.stopSession(0, defaultGrace)
	}
}

// becomeReady publishes the screen.
func (s *supervisor) becomeReady(ctx context.Context, d dialhome.Desktop) error {
	if err := s.show(ctx, d); err != nil {
		return err
	}
	s.enter(screen.Ready, control.EventReady, "")
	return nil
}

// show records the X server of this life of the desktop.
func (s *supervisor) show(ctx context.Context, d dialhome.Desktop) error {
	xserver, err := s.identify(ctx, d)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.record.XServer, s.record.Display, s.record.Ready, s.record.Asleep = xserver, d.Display, true, false
	if d.Fence != nil {
		s.fence = fenceOf(*d.Fence)
	}
	s.keepBrowser(d)
	s.mu.Unlock()
	s.save()
	return nil
}

// identify is the X server as this node sees it. A session in a pid namespace of its
// own knows another number; there the kernel is asked whose socket it passes.
func (s *supervisor) identify(ctx context.Context, d dialhome.Desktop) (process.Identity, error) {
	if s.config.SharedPIDs {
		if shown := d.XServer(); shown.Alive() {
			return shown, nil
		}
		return process.Identity{}, errors.New("the X server that the session shows does not run")
	}
	a, err := s.link.call(ctx, question{op: dialhome.OpDial, body: struct{}{}, want: 1})
	if err != nil {
		return process.Identity{}, err
	}
	defer a.passed[0].Close()
	xserver, err := serverBehind(a.passed[0].FD(), d.XPID)
	if err != nil {
		s.link.accuse(a.line, err)
	}
	return xserver, err
}

// save keeps the record for the next supervisor.
func (s *supervisor) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	r := s.record
	s.mu.Unlock()
	if err := r.save(s.dir); err != nil {
		s.log.Error("cannot save the screen's record", "error", err)
	}
}
