// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"fmt"
	"time"
)

// HeldError refuses what only goes while no human holds.
type HeldError struct {
	Lease Public
	// Left says that the human's grace is over: the agent is told that they left.
	Left bool
}

func (e *HeldError) Error() string {
	who := "human"
	if e.Lease.Viewer != "" {
		who += " " + string(e.Lease.Viewer)
	}
	text := fmt.Sprintf("held by %s since %s (epoch %d)", who, e.Lease.Since.UTC().Format(time.RFC3339), e.Lease.Epoch)
	if e.Left {
		text += ", who left"
	}
	return text
}

// ChangedError refuses an action because the lease it was decided under is over.
type ChangedError struct{ Seen, Now Epoch }

func (e *ChangedError) Error() string {
	if e.Seen == 0 {
		return fmt.Sprintf("no epoch given, now is %d", e.Now)
	}
	return fmt.Sprintf("epoch %d is over, now is %d", e.Seen, e.Now)
}

// Admit says whether an action of the agent may happen that was decided when it
// saw this epoch. It is asked before the first side effect and again when the
// result is there; a result that is not admitted is thrown away (rule L6). An
// epoch of 0, a caller that forgot, is never admitted. The error is a *HeldError
// or a *ChangedError.
func (l Lease) Admit(seen Epoch, p Policy, now time.Time) error {
	if l.Held() {
		return l.held(p, now)
	}
	if seen != l.Epoch {
		return &ChangedError{Seen: seen, Now: l.Epoch}
	}
	return nil
}

// MayStop says whether the screen may be stopped: not under a human, without
// force (rule L11).
func (l Lease) MayStop(force bool, p Policy, now time.Time) error {
	if l.Held() && !force {
		return l.held(p, now)
	}
	return nil
}

func (l Lease) held(p Policy, now time.Time) error {
	return &HeldError{Lease: l.Public(), Left: l.Presence(p, now) == Parked}
}

// Seen is the newest lease somebody has been told. News that arrive late do not
// take it back (rule L14). The zero value has seen nothing.
type Seen struct{ newest Public }

// Observe takes news in and reports whether they are newer than what was seen. Of
// two leases with one epoch the one with a human counts: the agent may not act
// under either before it has seen the next.
func (s *Seen) Observe(p Public) bool {
	newer := p.Epoch > s.newest.Epoch ||
		p.Epoch == s.newest.Epoch && p.Holder == Human && s.newest.Holder == Agent
	if newer {
		s.newest = p
	}
	return newer
}

// Lease is the newest one seen.
func (s *Seen) Lease() Public { return s.newest }
