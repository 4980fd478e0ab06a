// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"context"
	"errors"
	"time"
)

// retryAfter is how long an expiry that could not be written waits.
const retryAfter = 10 * time.Second

// transition is one step of the state machine.
type transition func(Lease, time.Time) (Lease, error)

// change makes one step: nobody is admitted, the old holder's keys are released,
// the lease is written, and then it is seen. It runs in turn. After a *StoreError
// the lease is what it was, unless the disk says otherwise for certain.
func (k *Keeper) change(step transition) (Lease, error) {
	now := time.Now()
	was, _ := k.Lease()
	l, certain, err := k.store.update(now, func(onDisk Lease, certain bool) (Lease, error) {
		to, err := step(k.truth(onDisk, certain), now)
		if err == nil && to.Epoch != was.Epoch {
			err = k.handOver(was, to)
		}
		return to, err
	})
	var disk *StoreError
	switch {
	case err == nil:
		k.settle(l, nil)
	case errors.As(err, &disk):
		if !certain || was.Epoch >= l.Epoch {
			l = was
		}
		k.settle(l, err)
	default: // the step itself was refused
		l = was
	}
	return l, err
}

// changeInMemory makes a step that the disk has refused. The next one that it
// takes writes this one too.
func (k *Keeper) changeInMemory(step transition, trouble error) (Lease, error) {
	from, _ := k.Lease()
	to, err := step(from, time.Now())
	if err != nil {
		return from, err
	}
	if to.Epoch != from.Epoch {
		if err := k.handOver(from, to); err != nil {
			return from, err
		}
	}
	k.settle(to, trouble)
	return to, nil
}

// truth weighs the disk against what this process knows. A newer lease on disk is
// another supervisor's. A lost one does not take the screen from the human that
// this process knows to hold, but from the agent it does (rule L2).
func (k *Keeper) truth(onDisk Lease, certain bool) Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.lease.Held() && k.lease.Viewer != "" && k.store.floor(0).Floor <= k.lease.Epoch
	if k.lease.Epoch > onDisk.Epoch || !certain && known {
		return k.lease
	}
	return onDisk
}

// handOver stops everybody, makes the screen ready for a human, and releases what the old
// holder presses. After an error everything is as it was.
func (k *Keeper) handOver(from, to Lease) error {
	k.mu.Lock()
	k.to = &to
	close(k.changing)
	k.changing = make(chan struct{})
	k.mu.Unlock()
	if to.Held() && k.options.Prepare != nil {
		if err := k.options.Prepare(from, to); err != nil {
			k.mu.Lock()
			k.to = nil
			k.signal() // whoever was refused meanwhile may look again
			k.mu.Unlock()
			return &PrepareError{err}
		}
	}
	k.options.Handover(from, to)
	return nil
}

// settle publishes the lease that holds now.
func (k *Keeper) settle(l Lease, trouble error) {
	k.mu.Lock()
	k.to = nil
	was := k.lease
	k.lease, k.trouble = l, trouble
	if l.Epoch != was.Epoch {
		k.claim = Claim{}
	}
	if l != was {
		k.signal()
	}
	k.mu.Unlock()
	if l.Epoch == was.Epoch {
		return
	}
	kind := HandedBack
	if l.Held() {
		kind = Taken
	}
	k.options.Notify(Notice{Kind: kind, From: was, To: l})
}

// signal wakes those who watch. It needs mu.
func (k *Keeper) signal() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Run makes time count until ctx ends: claims are granted, the reminder comes at
// the end of the grace, and a lease returns at the limit.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, some, changed := k.nextTime()
		if some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-timer.C:
			k.tick()
		}
	}
}

// nextTime is how long until tick has something to do, if it ever has.
func (k *Keeper) nextTime() (wait time.Duration, some bool, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clock := k.clock()
	if at := k.lease.NextChange(k.options.Policy, clock); !at.IsZero() {
		wait, some = at.Sub(clock), true
	}
	if k.lease.Presence(k.options.Policy, clock) == Parked && k.reminded != k.lease.Away {
		wait, some = 0, true
	}
	if !k.notBefore.IsZero() {
		wait = max(wait, time.Until(k.notBefore))
	}
	if k.claim.Viewer != "" {
		if due := time.Until(k.claim.Deadline); !some || due < wait {
			wait, some = due, true
		}
	}
	return wait, some, k.changed
}

// absence counts how long the holder has been away by the monotonic clock: a wall clock
// that is set gives nobody's screen back (MEM-10). The wall clock counts for the time
// before this process alone.
type absence struct {
	away   time.Time     // the Away that is counted
	seen   time.Time     // when it was first seen
	before time.Duration // how long the holder had been away by then
}

// at is the time by the clock that a lease's Away is on.
func (a *absence) at(away, now time.Time) time.Time {
	if away.IsZero() {
		return now
	}
	if a.away != away {
		*a = absence{away: away, seen: now, before: max(now.Round(0).Sub(away), 0)}
	}
	return away.Add(a.before + now.Sub(a.seen))
}

// clockOf is clock where the lease may be another one, from disk.
func (k *Keeper) clockOf(l Lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absence.at(l.Away, time.Now())
}

// clock is the time for the presence and the expiry of the lease. It needs mu.
func (k *Keeper) clock() time.Time { return k.absence.at(k.lease.Away, time.Now()) }

// tick does what is due.
func (k *Keeper) tick() {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.mu.Lock()
	l, claim, clock := k.lease, k.claim, k.clock()
	due := claim.Viewer != "" && !time.Now().Before(claim.Deadline)
	if due {
		k.claim = Claim{}
	}
	parked := l.Presence(k.options.Policy, clock) == Parked && k.reminded != l.Away
	if parked {
		k.reminded = l.Away
	}
	k.mu.Unlock()
	if due {
		k.take(claim.Viewer, claim.Reason) // Trouble tells
		return
	}
	if parked {
		k.options.Notify(Notice{Kind: HumanAway, From: l, To: l})
	}
	if to, err := l.Expire(k.options.Policy, clock); err == nil && to.Epoch != l.Epoch {
		k.expire()
	}
}

// expire runs in turn. What the disk refuses is tried again later.
func (k *Keeper) expire() {
	_, err := k.change(func(l Lease, now time.Time) (Lease, error) {
		if to, err := l.Expire(k.options.Policy, k.clockOf(l)); err != nil || to.Epoch == l.Epoch {
			return l, err
		}
		return l.Free(now)
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notBefore = time.Time{}
	if err != nil {
		k.notBefore = time.Now().Add(retryAfter)
	}
}
