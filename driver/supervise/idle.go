// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// idleLook is how often it is looked whether the screen is used (rule I1).
const idleLook = 30 * time.Second

// use is what the idle clock knows. A picture, an action, a command and a viewer use the
// screen while they last; status, events and probes do not.
type use struct {
	last    time.Time // the last use that has ended
	current int       // uses that last
}

// touch says that somebody uses the screen now.
func (s *supervisor) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use.last = time.Now()
}

// lookOn needs a desktop and is no use of it: what dashboards ask for neither wakes it nor
// keeps it awake (rule I3).
func (s *supervisor) lookOn(_ context.Context, what string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != screen.Ready {
		return nil, notReady(what, s.state)
	}
	return func() {}, nil
}

func notReady(what string, state screen.State) error {
	switch state {
	case screen.Starting, screen.Waking:
		return &control.Error{Kind: control.Busy, Message: fmt.Sprintf("Cannot %s: the desktop is still starting.", what), Next: "Try again in a moment."}
	case screen.Frozen:
		return &control.Error{Kind: control.Busy, Message: fmt.Sprintf("Cannot %s: the desktop is frozen.", what), Next: "Wake it with `botscreen wake`, or by using it."}
	case screen.Asleep:
		return &control.Error{Kind: control.Busy, Message: fmt.Sprintf("Cannot %s: the desktop is asleep.", what), Next: "Wake it with `botscreen wake`, or by using it."}
	default:
		return &control.Error{Kind: control.Gone, Message: fmt.Sprintf("Cannot %s: the screen is %s.", what, state), Next: "Start it again."}
	}
}

// begin is a use of the screen: it wakes a desktop that sleeps, waits for it, and keeps it
// from being put to sleep until the use ends. The error says why there is no desktop.
func (s *supervisor) begin(ctx context.Context, what string) (end func(), err error) {
	return s.beginWhere(ctx, func(state screen.State) error {
		if state != screen.Ready {
			return notReady(what, state)
		}
		return nil
	})
}

// beginCommand is the same for a command, which a desktop that is still starting may
// refuse itself.
func (s *supervisor) beginCommand(ctx context.Context) (end func(), err error) {
	return s.beginWhere(ctx, func(screen.State) error { return nil })
}

// beginWhere begins a use in a state that may allows, once a desktop that sleeps is awake.
func (s *supervisor) beginWhere(ctx context.Context, may func(screen.State) error) (end func(), err error) {
	for {
		s.mu.Lock()
		if s.state != screen.Asleep && s.state != screen.Frozen && s.state != screen.Waking {
			defer s.mu.Unlock()
			if err := may(s.state); err != nil {
				return nil, err
			}
			s.use.current++
			return sync.OnceFunc(s.endUse), nil
		}
		s.mu.Unlock()
		if err := s.wake(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *supervisor) endUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use.current--
	s.use.last = time.Now()
}

// watchIdle puts the desktop to sleep, or ends the screen, when nobody has used it for as
// long as the job says.
func (s *supervisor) watchIdle(ctx context.Context) {
	after := s.config.Idle.After
	if after <= 0 {
		return
	}
	look := time.NewTicker(min(idleLook, max(after/4, 100*time.Millisecond)))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case now := <-look.C:
			if unused, ok := s.unusedFor(now); ok && unused >= after {
				s.rest(after)
			}
		}
	}
}

// unusedFor is how long nobody has used the screen. It is in use while there is a use, a
// viewer, a person who holds (rule I2) or who is waited for.
func (s *supervisor) unusedFor(now time.Time) (d time.Duration, unused bool) {
	if s.holds().Held() || len(s.relay.Viewers()) > 0 || len(s.asks.open(now)) > 0 {
		s.touch()
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != screen.Ready || s.use.current > 0 {
		return 0, false
	}
	return max(now.Sub(s.use.last), 0), true
}

func (s *supervisor) rest(after time.Duration) {
	reason := fmt.Sprintf("not used for %s", after)
	if s.config.Idle.Action == screen.IdleExit {
		s.mu.Lock()
		s.resting = reason
		s.mu.Unlock()
		if s.beginStop() {
			s.stopSession(0, defaultGrace)
		}
		return
	}
	if s.config.Idle.Action == screen.IdleFreeze && s.brake == nil {
		return // its windows are not to be lost; the status says why it stays awake
	}
	if err := s.repose(after, reason); err != nil {
		s.log.Warn("the desktop was not put to sleep", "error", err)
	}
}

// repose puts the desktop to rest in the way the job wants.
func (s *supervisor) repose(after time.Duration, reason string) error {
	if s.config.Idle.Action == screen.IdleFreeze && s.brake != nil {
		return s.freeze(after, reason)
	}
	return s.sleep(after, reason)
}

// beginRest takes the turn and enters a state of rest, if nobody has used the desktop for so
// long. From then on a use waits until done, and then ends the rest. What note changes is
// saved with the state; it runs under mu.
func (s *supervisor) beginRest(state screen.State, after time.Duration, reason string, note func()) (done func(), err error) {
	select {
	case s.turn <- struct{}{}:
	default:
		return nil, errBusy // the rest before is being ended
	}
	done = func() { <-s.turn }
	if !s.enterRest(state, after, reason, note) {
		done()
		return nil, errBusy
	}
	s.save()
	return done, nil
}

func (s *supervisor) enterRest(state screen.State, after time.Duration, reason string, note func()) bool {
	if unused, ok := s.unusedFor(time.Now()); !ok || unused < after {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != screen.Ready || s.use.current > 0 {
		return false
	}
	s.state, s.since, s.reason = state, time.Now().UTC(), screen.Distrust(reason)
	note()
	return true
}

// sleep ends the desktop, if nobody has used it for so long, and keeps everything that
// brings it back: session, lease, doors.
func (s *supervisor) sleep(after time.Duration, reason string) error {
	done, err := s.beginRest(screen.Asleep, after, reason, func() {
		s.record.Asleep, s.record.Ready = true, false
		s.fence = control.Fence{Mode: control.Advisory, Reason: "no desktop runs"}
	})
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), defaultGrace+stopSlack)
	defer cancel()
	if _, err := s.link.call(ctx, question{op: dialhome.OpSleep, body: dialhome.Sleep{Grace: defaultGrace}, urgent: true}); err != nil {
		// A session that failed ends, and its end says why. One that does not answer may
		// have obeyed: the next use finds out.
		return err
	}
	s.note(control.EventAsleep, reason)
	go s.giveBack() // what its pictures and viewers needed
	return nil
}

// giveBack returns the memory that is not needed while nothing happens: seventy screens have
// seventy supervisors.
func (s *supervisor) giveBack() {
	if err := process.Rest(); err != nil {
		s.log.Warn("memory is not given back", "error", err)
	}
}
