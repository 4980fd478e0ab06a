// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// focusEvery is how often is looked who gets what a person types. Nothing is looked for
	// while the agent has control.
	focusEvery = 500 * time.Millisecond
	// focusGrace is how long after a click or a command key a program may take the focus as
	// its consequence.
	focusGrace = time.Second
)

// watchFocus tells the person in control when the keyboard goes to a program they did not
// turn to (threats.md X44).
func (s *supervisor) watchFocus(ctx context.Context) {
	for {
		held, changed := s.keeper.Lease()
		if held.Held() {
			s.followFocus(ctx, held, changed)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-changed:
		}
	}
}

// followFocus looks until the lease changes.
func (s *supervisor) followFocus(ctx context.Context, held lease.Lease, changed <-chan struct{}) {
	look := time.NewTicker(focusEvery)
	defer look.Stop()
	now := time.Now()
	watch := focusWatch{looked: now, free: now}
	for {
		s.lookForFocus(ctx, held.Epoch, &watch)
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-changed:
			return
		case <-look.C:
		}
	}
}

func (s *supervisor) lookForFocus(ctx context.Context, epoch lease.Epoch, watch *focusWatch) {
	s.mu.Lock()
	ready := s.state == screen.Ready
	s.mu.Unlock()
	if !ready {
		return
	}
	now, steered := time.Now(), s.relay.Steered()
	var f dialhome.Focus
	body := dialhome.LookForFocus{Grabs: watch.quiet(now, s.relay.Typed())}
	if err := s.askDesk(ctx, question{op: dialhome.OpFocus, body: body}, &f); err != nil {
		return // the next look tells, or the desktop's end does
	}
	stolen, grabbed := watch.look(now, steered, f, body.Grabs)
	if stolen || grabbed {
		s.relay.FocusMoved(epoch, relay.FocusNotice{
			Program: screen.Distrust(f.Program), Title: screen.Distrust(f.Title), Grabbed: grabbed && !stolen,
		})
	}
	if stolen {
		s.mu.Lock()
		s.thief = dialhome.EndClient{Client: f.Client, PID: f.PID}
		s.mu.Unlock()
	}
}

// endProgram ends the program that the person in control was last told of.
func (s *supervisor) endProgram(ctx context.Context) error {
	s.mu.Lock()
	thief := s.thief
	s.thief = dialhome.EndClient{}
	s.mu.Unlock()
	if thief.Client == 0 {
		return errors.New("end a program: there is none the person was told of")
	}
	return s.askDesk(ctx, question{op: dialhome.OpEndClient, body: thief, urgent: true}, nil)
}

// focusWatch remembers what was seen under one lease.
type focusWatch struct {
	looked  time.Time // the last look, at first the beginning
	client  uint32    // who had the focus
	known   bool      // client was looked for
	grabbed bool      // as last seen
	free    time.Time // the last time that the keyboard was found free, at first the beginning
}

// quiet says whether a look for grabs would take no key from anybody: it costs one that
// comes in the same moment.
func (w *focusWatch) quiet(now, typed time.Time) bool { return now.Sub(typed) > focusGrace }

// look takes in what is seen now, and says whether the focus, or the keyboard, was taken
// without the person's doing.
func (w *focusWatch) look(now, steered time.Time, f dialhome.Focus, lookedForGrab bool) (stolen, grabbed bool) {
	byItself := steered.Before(w.looked.Add(-focusGrace))
	if f.Client != 0 {
		stolen = w.known && f.Client != w.client && byItself
		w.client = f.Client
	}
	w.known = true
	w.looked = now
	if !lookedForGrab {
		return stolen, false
	}
	grabbed = f.Grabbed && !w.grabbed && steered.Before(w.free)
	if w.grabbed = f.Grabbed; !f.Grabbed {
		w.free = now
	}
	return stolen, grabbed
}
