// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/screen"
)

// asks are the agent's wishes for a person, newest last (rule L13). The next supervisor of
// the run goes on with them. There are as many as may be asked in
// an hour (X25), of which one is not over.
type asks struct {
	mu      sync.Mutex // guards all below
	all     []*wish
	changed chan struct{} // closed and replaced at each change
}

// wish is one ask and what has become of it.
type wish struct {
	control.Ask
	state control.AskState
	taken time.Time // when a person came
	held  time.Duration
}

func newAsks() *asks { return &asks{changed: make(chan struct{})} }

// add opens an ask, unless one is open or too many were. It asks who holds the screen
// while no news of that can be missed.
func (a *asks) add(req control.AskRequest, holds func() lease.Lease, now time.Time) (control.Ask, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	if n := len(a.all); n > 0 && !a.all[n-1].state.Over() {
		return control.Ask{}, &control.Error{Kind: control.Busy,
			Message: "A person has been asked for already.", Next: "Wait for the ask " + a.all[n-1].ID + "."}
	}
	if n := len(a.all); n == control.MaxAsksPerHour {
		if free := a.all[0].Since.Add(time.Hour); now.Before(free) {
			return control.Ask{}, &control.Error{Kind: control.Busy,
				Message: fmt.Sprintf("A person has been asked for %d times within an hour, which is the most.", n),
				Next:    "Ask again after " + free.UTC().Format("15:04:05 UTC") + "."}
		}
		a.all = a.all[1:]
	}
	w := &wish{state: control.AskOpen, Ask: control.Ask{
		ID: newAskID(), Reason: screen.Distrust(req.Reason), Since: now.UTC(), Deadline: req.Deadline.UTC(),
	}}
	if req.Deadline.IsZero() {
		w.Deadline = time.Time{}
	}
	if holds().Held() {
		w.state, w.taken = control.AskTaken, now
	}
	a.all = append(a.all, w)
	return w.Ask, nil
}

func newAskID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// expire needs mu. A person who came in time is not too late afterwards.
func (a *asks) expire(now time.Time) {
	for _, w := range a.all {
		if w.state == control.AskOpen && !w.Deadline.IsZero() && !now.Before(w.Deadline) {
			w.state = control.AskExpired
		}
	}
}

// leaseChanged moves the ask that is not over along with the lease.
func (a *asks) leaseChanged(n lease.Notice, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	for _, w := range a.all {
		switch {
		case w.state == control.AskOpen && n.Kind == lease.Taken:
			w.state, w.taken = control.AskTaken, now
		case w.state == control.AskTaken && n.Kind == lease.HandedBack:
			w.state, w.held = control.AskHandedBack, now.Sub(w.taken)
		}
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// open lists what people are asked for now.
func (a *asks) open(now time.Time) []control.Ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	var open []control.Ask
	for _, w := range a.all {
		if w.state == control.AskOpen {
			open = append(open, w.Ask)
		}
	}
	return open
}

// look finds an ask, with a channel that closes when it may have changed.
func (a *asks) look(id string, now time.Time) (wish, <-chan struct{}, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	for _, w := range a.all {
		if w.ID == id {
			return *w, a.changed, true
		}
	}
	return wish{}, nil, false
}

// Ask asks for a person: an event that people see, and a line in the status.
func (s *supervisor) Ask(_ context.Context, _ controlserver.Caller, req control.AskRequest) (control.Ask, error) {
	now := time.Now()
	if err := checkAsk(req, now); err != nil {
		return control.Ask{}, err
	}
	select {
	case <-s.ended:
		return control.Ask{}, &control.Error{Kind: control.Gone, Message: "Cannot ask for a person: the screen has ended."}
	default:
	}
	asked, err := s.asks.add(req, s.holds, now)
	if err != nil {
		return control.Ask{}, err
	}
	s.saveAsks()
	s.note(control.EventHumanWanted, req.Reason)
	s.showAsks()
	return asked, nil
}

// showAsks tells the viewers what the agent wants a person for now.
func (s *supervisor) showAsks() {
	s.showing.Lock()
	defer s.showing.Unlock()
	var wish *relay.Wish
	for _, a := range s.asks.open(time.Now()) {
		wish = &relay.Wish{Reason: a.Reason, Deadline: a.Deadline}
	}
	s.relay.Want(wish)
}

func (s *supervisor) holds() lease.Lease {
	held, _ := s.keeper.Lease()
	return held
}

func checkAsk(req control.AskRequest, now time.Time) error {
	var faults screen.Faults
	if strings.TrimSpace(req.Reason) == "" {
		faults.Add("reason", req.Reason, "must say why a person is needed")
	}
	if n := utf8.RuneCountInString(req.Reason); n > control.MaxAskReason {
		faults.Add("reason", fmt.Sprintf("%d characters", n), fmt.Sprintf("must have at most %d", control.MaxAskReason))
	}
	if d := req.Deadline; !d.IsZero() && (d.Before(now) || d.After(now.Add(control.MaxAskDeadline))) {
		faults.Add("deadline", d.Format(time.RFC3339), fmt.Sprintf("must lie within the next %s", control.MaxAskDeadline))
	}
	if err := faults.Err(); err != nil {
		return &control.Error{Kind: control.BadRequest, Message: "Cannot ask for a person: " + err.Error() + "."}
	}
	return nil
}

// AwaitAsk says what became of an ask.
func (s *supervisor) AwaitAsk(ctx context.Context, id string, wait time.Duration) (control.AskOutcome, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for last := wait <= 0; ; {
		w, changed, ok := s.asks.look(id, time.Now())
		if !ok {
			return control.AskOutcome{}, &control.Error{Kind: control.Gone,
				Message: "This supervisor knows of no such ask.", Next: "Look at the lease and ask again if a person is still needed."}
		}
		if last || w.state.Over() {
			held := s.holds()
			outcome := control.AskOutcome{Ask: w.Ask, State: w.state, Lease: held.Public(), Held: w.held}
			if w.state == control.AskHandedBack {
				outcome.Note = s.noteOf(ctx, held.Epoch)
			}
			return outcome, nil
		}
		var late <-chan time.Time
		if w.state == control.AskOpen && !w.Deadline.IsZero() {
			late = time.After(time.Until(w.Deadline))
		}
		select {
		case <-changed:
		case <-late:
		case <-timeout.C:
			last = true
		case <-s.ended:
			last = true
		case <-ctx.Done():
			return control.AskOutcome{}, ctx.Err()
		}
	}
}
