// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// Options of a Keeper.
type Options struct {
	Policy Policy
	// Handover is called at every change of hands, while neither side is admitted
	// and before the new lease is written or seen: what the old holder still presses
	// is released here. It must end within a bound of its own.
	Handover func(from, to Lease)
	// Prepare is called before a human gets the screen, after which nobody is admitted
	// and before Handover. With an error the screen does not change hands, and who takes
	// gets a *PrepareError. nil: there is nothing to prepare.
	Prepare func(from, to Lease) error
	// Notify is told in order what happened. It must not block and must not call the
	// Keeper's changing methods.
	Notify func(Notice)
}

// NoticeKind says what happened.
type NoticeKind string

// What a Keeper tells.
const (
	Taken      NoticeKind = "taken"
	HandedBack NoticeKind = "handed_back"
	HumanAway  NoticeKind = "human_away" // the holder's grace is over (rule L10)
	Asked      NoticeKind = "asked"      // the holder is asked to give it to another human
	Denied     NoticeKind = "denied"     // and keeps it
)

// Notice is one thing that happened. Claim is of Asked and Denied.
type Notice struct {
	Kind     NoticeKind
	From, To Lease
	Claim    Claim
}

// Claim is a human's wish to take from another who is present (rule L5). It is
// granted at its deadline.
type Claim struct {
	Viewer   ViewerID
	Reason   screen.Untrusted
	Deadline time.Time
}

// AskedError says that the present holder has been asked.
type AskedError struct{ Until time.Time }

func (e *AskedError) Error() string {
	return fmt.Sprintf("the present holder is asked until %s", e.Until.UTC().Format(time.RFC3339))
}

// PrepareError says that a human did not get the screen because it could not be made
// ready for them.
type PrepareError struct{ Err error }

func (e *PrepareError) Error() string { return "prepare takeover: " + e.Err.Error() }
func (e *PrepareError) Unwrap() error { return e.Err }

// Keeper is the one authority over a screen's lease while a supervisor lives: the
// stored lease, who is attached, and what time does. It is safe for concurrent use.
type Keeper struct {
	store   *Store
	options Options

	// turn is held across a whole change of hands, with what that writes.
	turn sync.Mutex

	mu       sync.Mutex // guards all below; never held across I/O
	lease    Lease
	to       *Lease // while hands change: admitted is nobody, refused is by this
	claim    Claim  // without a viewer there is none
	streams  map[ViewerID]int
	reminded time.Time // the Away that HumanAway was told for
	absence  absence   // how long the holder has been away
	trouble  error     // why the lease is not on disk
	// notBefore is when what could not be written is tried again.
	notBefore time.Time
	changed   chan struct{} // closed and replaced whenever something above changes
	changing  chan struct{} // closed and replaced whenever hands begin to change
}

// OpenKeeper loads the lease. Where the disk takes no write it keeps what it read, and
// Trouble says why: a screen needs its supervisor all the same. Run makes time count.
func OpenKeeper(store *Store, options Options) (*Keeper, error) {
	l, err := store.Load(time.Now())
	var disk *StoreError
	if err != nil && !errors.As(err, &disk) {
		return nil, err
	}
	if options.Handover == nil {
		options.Handover = func(Lease, Lease) {}
	}
	if options.Notify == nil {
		options.Notify = func(Notice) {}
	}
	return &Keeper{store: store, options: options, lease: l, trouble: err, streams: map[ViewerID]int{}, changed: make(chan struct{}), changing: make(chan struct{})}, nil
}

// Lease returns the lease that holds and a channel that closes at the next change.
func (k *Keeper) Lease() (Lease, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease, k.changed
}

// Changing returns a channel that closes when hands begin to change: Admit refuses from
// then on, and the lease is seen only when the disk has it.
func (k *Keeper) Changing() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changing
}

// Trouble is why the lease could not be written, nil when it is on disk.
func (k *Keeper) Trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// Admit is Lease.Admit now. While hands change nobody is admitted.
func (k *Keeper) Admit(seen Epoch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lease
	if k.to != nil {
		l = *k.to
	}
	if err := l.Admit(seen, k.options.Policy, k.clock()); err != nil || k.to == nil {
		return err
	}
	return &ChangedError{Seen: seen, Now: l.Epoch}
}

// Holds reports whether the viewer's input may pass now.
func (k *Keeper) Holds(v ViewerID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.to == nil && k.lease.HeldBy(v)
}

// MayStop is Lease.MayStop now.
func (k *Keeper) MayStop(force bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease.MayStop(force, k.options.Policy, k.clock())
}

// Take gives the screen to a viewer. With the policy's consent, and without force,
// a present holder is asked first and the error is an *AskedError. When the disk
// fails a person gets the screen all the same, and Trouble says why.
func (k *Keeper) Take(v ViewerID, reason screen.Untrusted, force bool) (Lease, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	if !force {
		if asked := k.ask(Claim{Viewer: v, Reason: reason}); asked != nil {
			l, _ := k.Lease()
			return l, asked
		}
	}
	return k.take(v, reason)
}

// take runs in turn.
func (k *Keeper) take(v ViewerID, reason screen.Untrusted) (Lease, error) {
	op := func(l Lease, now time.Time) (Lease, error) {
		to, err := l.Take(v, reason, now)
		if err == nil && !k.attached(v) {
			to = to.Left(v, now) // until its stream comes
		}
		return to, err
	}
	l, err := k.change(op)
	var disk *StoreError
	if !errors.As(err, &disk) {
		return l, err
	}
	return k.changeInMemory(op, err)
}

// ask opens or changes a claim where the policy wants one. It runs in turn.
func (k *Keeper) ask(c Claim) error {
	k.mu.Lock()
	now := time.Now()
	holder := k.lease
	if !k.options.Policy.Consent || c.Viewer == "" || !holder.Held() || holder.Viewer == "" || holder.HeldBy(c.Viewer) ||
		!holder.Away.IsZero() {
		k.mu.Unlock()
		return nil
	}
	// A later claim takes the place of an earlier one, but not its time.
	c.Deadline = k.claim.Deadline
	if k.claim.Viewer == "" {
		c.Deadline = now.Add(k.options.Policy.ConsentTime)
	}
	k.claim = c
	k.signal()
	k.mu.Unlock()
	k.options.Notify(Notice{Kind: Asked, From: holder, To: holder, Claim: c})
	return &AskedError{Until: c.Deadline}
}

// Deny is the holder's way out of a claim; from anybody else it is ignored.
func (k *Keeper) Deny(v ViewerID) {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.mu.Lock()
	holder, claim := k.lease, k.claim
	denied := holder.HeldBy(v) && claim.Viewer != ""
	if denied {
		k.claim = Claim{}
		k.signal()
	}
	k.mu.Unlock()
	if denied {
		k.options.Notify(Notice{Kind: Denied, From: holder, To: holder, Claim: claim})
	}
}

// Release is a viewer's hand-back: to the human that has asked, else to the agent.
// From one that does not hold it is ignored (rule L4).
func (k *Keeper) Release(v ViewerID) (Lease, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	return k.release(v)
}

func (k *Keeper) release(v ViewerID) (Lease, error) {
	if claim, ok := k.claimOn(v); ok {
		return k.take(claim.Viewer, claim.Reason)
	}
	return k.change(func(l Lease, now time.Time) (Lease, error) { return l.Release(v, now) })
}

// claimOn is the open claim on what v holds.
func (k *Keeper) claimOn(v ViewerID) (Claim, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.claim, k.claim.Viewer != "" && k.lease.HeldBy(v)
}

// Free gives the screen to the agent whoever holds.
func (k *Keeper) Free() (Lease, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	return k.change(Lease.Free)
}

// Attach notes that a stream of the viewer has begun.
func (k *Keeper) Attach(v ViewerID) {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.count(v, 1)
	k.change(func(l Lease, _ time.Time) (Lease, error) { return l.Back(v), nil }) // Trouble tells
}

// Detach notes that a stream of the viewer has ended. The last one hands back when
// its end was deliberate (WebSocket 1000 or 1001) and leaves the lease otherwise
// (rule L9).
func (k *Keeper) Detach(v ViewerID, deliberate bool) (Lease, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	if k.count(v, -1) > 0 {
		l, _ := k.Lease()
		return l, nil
	}
	if claim, ok := k.claimOn(v); ok && !deliberate {
		return k.take(claim.Viewer, claim.Reason) // nobody is left to be asked
	}
	if deliberate {
		return k.release(v)
	}
	return k.change(func(l Lease, now time.Time) (Lease, error) { return l.Left(v, now), nil })
}

func (k *Keeper) count(v ViewerID, by int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.streams[v] += by
	n := k.streams[v]
	if n <= 0 {
		delete(k.streams, v)
	}
	return n
}

func (k *Keeper) attached(v ViewerID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.streams[v] > 0
}
