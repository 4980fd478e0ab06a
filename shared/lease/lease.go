// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"errors"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// Lease is who may control a screen now. Its methods are the whole state machine:
// each returns the lease that follows, and time is what the caller says it is. A
// change of hands raises the epoch by one; everything else leaves it.
type Lease struct {
	Holder Holder
	// Viewer is the human that holds. It is empty while the agent does, and while
	// nobody can say which human it was: then only a taker or an operator gets past.
	Viewer ViewerID `json:"-"` // only a record carries it
	Since  time.Time
	Reason screen.Untrusted
	Epoch  Epoch
	// Away is when the human's last stream ended without a hand-back; zero while
	// one is attached.
	Away time.Time
}

// ErrExhausted says that the epoch cannot grow any more (rule L3). It takes
// several hundred thousand years of one change each millisecond, or a forged file.
var ErrExhausted = errors.New("epoch exhausted")

// ErrViewerID says that somebody without a proper id wants to hold.
var ErrViewerID = errors.New("a viewer id must be 1 to 128 printable ASCII characters")

// First is the lease of a screen without history: the agent's, at an epoch that is
// above all that older nodes have counted (rule L3).
func First(now time.Time) Lease {
	return Lease{Holder: Agent, Since: stamp(now), Epoch: epochAt(now)}
}

// unknown is the lease when the real one cannot be told: a human's, nobody's, so
// that the agent is refused until somebody acts (rule L2).
func unknown(why string, epoch Epoch, now time.Time) Lease {
	return Lease{Holder: Human, Since: stamp(now), Away: stamp(now), Reason: screen.Distrust(why), Epoch: epoch}
}

func epochAt(now time.Time) Epoch { return Epoch(max(1, now.UnixMilli())) }

// stamp is a time as it survives the file: without a monotonic part.
func stamp(now time.Time) time.Time { return now.UTC().Round(0) }

// Held reports whether a human holds.
func (l Lease) Held() bool { return l.Holder != Agent }

// HeldBy reports whether this viewer holds.
func (l Lease) HeldBy(v ViewerID) bool { return l.Held() && v != "" && l.Viewer == v }

// Public is the lease as everybody may see it (rule L12).
func (l Lease) Public() Public {
	return Public{Holder: l.Holder, Viewer: l.Viewer.Handle(), Since: l.Since, Reason: l.Reason, Epoch: l.Epoch, Away: l.Away}
}

func (l Lease) next(to Lease, now time.Time) (Lease, error) {
	if l.Epoch >= MaxEpoch {
		return l, ErrExhausted
	}
	to.Epoch, to.Since = l.Epoch+1, stamp(now)
	return to, nil
}

// Take gives the screen to a viewer, whoever had it: the last taker wins (rule
// L5). The holder taking again changes nothing (rule L3), but is present.
func (l Lease) Take(v ViewerID, reason screen.Untrusted, now time.Time) (Lease, error) {
	switch {
	case !v.Valid():
		return l, ErrViewerID
	case l.HeldBy(v):
		return l.Back(v), nil
	default:
		return l.next(Lease{Holder: Human, Viewer: v, Reason: reason}, now)
	}
}

// Release gives the screen back to the agent. From a viewer that does not hold it
// is ignored (rule L4).
func (l Lease) Release(v ViewerID, now time.Time) (Lease, error) {
	if !l.HeldBy(v) {
		return l, nil
	}
	return l.Free(now)
}

// Free gives the screen back to the agent whoever holds: an operator's right.
// While the agent holds it changes nothing, or it would void a legitimate action.
func (l Lease) Free(now time.Time) (Lease, error) {
	if !l.Held() {
		return l, nil
	}
	return l.next(Lease{Holder: Agent}, now)
}

// Left notes that the viewer's last stream ended without a hand-back (rule L9).
func (l Lease) Left(v ViewerID, now time.Time) Lease {
	if l.HeldBy(v) && l.Away.IsZero() {
		l.Away = stamp(now)
	}
	return l
}

// Back notes that the viewer is there again.
func (l Lease) Back(v ViewerID) Lease {
	if l.HeldBy(v) {
		l.Away = time.Time{}
	}
	return l
}

// Policy is what happens around a human that holds.
type Policy struct {
	// Grace is how long a vanished holder counts as just gone.
	Grace time.Duration
	// AwayLimit is how long after the grace the lease returns to the agent by
	// itself; 0 is never.
	AwayLimit time.Duration
	// Consent asks a present holder before another human takes; it has ConsentTime
	// to refuse.
	Consent     bool
	ConsentTime time.Duration
}

// DefaultPolicy has the durations of rules L5 and L10.
func DefaultPolicy() Policy {
	return Policy{Grace: 60 * time.Second, ConsentTime: 10 * time.Second}
}

// Presence says how a lease's human is there (rule L10).
type Presence string

// Presence of the holder.
const (
	Present Presence = "present" // a stream is attached, or the agent holds
	Gone    Presence = "gone"    // it ended, and the grace runs
	Parked  Presence = "parked"  // the grace is over: "the human left"
)

// Presence is the holder's at a time.
func (l Lease) Presence(p Policy, now time.Time) Presence {
	switch {
	case !l.Held() || l.Away.IsZero():
		return Present
	case now.Sub(l.Away) < p.Grace:
		return Gone
	default:
		return Parked
	}
}

// Expire gives the screen back when its human has been away for longer than the
// policy allows; without a limit it never does.
func (l Lease) Expire(p Policy, now time.Time) (Lease, error) {
	if at := l.expiry(p); at.IsZero() || now.Before(at) {
		return l, nil
	}
	return l.Free(now)
}

// expiry is never where it cannot be told who holds (rule X26).
func (l Lease) expiry(p Policy) time.Time {
	if !l.Held() || l.Viewer == "" || l.Away.IsZero() || p.AwayLimit <= 0 {
		return time.Time{}
	}
	return l.Away.Add(p.Grace + p.AwayLimit)
}

// NextChange is when time alone changes the presence or the holder; zero when it
// does not.
func (l Lease) NextChange(p Policy, now time.Time) time.Time {
	if l.Presence(p, now) == Gone {
		return l.Away.Add(p.Grace)
	}
	return l.expiry(p)
}
