// SPDX-License-Identifier: MPL-2.0

package display

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/botscreen/botscreen/driver/slot"
)

// Claims gives display numbers to the starts of this node, one number to one start.
//
// Every number has a slot of its own below Node, so two starters, in one process or in two, never choose the
// same number, and a start that hangs keeps its own number only (D3, D6).
type Claims struct {
	Host
	// Node is the node's slot directory, `<run_dir>/node`.
	Node *slot.Dir
	// Band is where numbers are picked from.
	Band Band
}

// Claim is a number that no other start can choose until Release or the death of this process.
type Claim struct {
	number  Number
	slot    *slot.Slot
	cleared []string
}

// Number is the claimed number.
func (c *Claim) Number() Number { return c.number }

// Cleared lists what was removed of a dead server so that the number could be had, for the log.
func (c *Claim) Cleared() []string { return c.cleared }

// Release lets the number go. Call it once the X server has made its own lock (it has reported its displayfd),
// or when the start is given up. Further calls do nothing.
func (c *Claim) Release() { c.slot.Release() }

// ExhaustedError says that no number of the band can be had.
type ExhaustedError struct {
	Band Band
	// InUse, Starting and Blocked count why: an X server is there, another start holds it, or no server could start there.
	InUse, Starting, Blocked int
	// Excluded counts numbers that the caller did not want.
	Excluded int
}

func (e *ExhaustedError) Error() string {
	if e.InUse == e.Band.Len() {
		return fmt.Sprintf("all %d numbers from %s to %s in use", e.InUse, e.Band.First, e.Band.Last)
	}
	return fmt.Sprintf("none of %d numbers from %s to %s free: %d in use, %d claimed by other starts, %d blocked, %d excluded",
		e.Band.Len(), e.Band.First, e.Band.Last, e.InUse, e.Starting, e.Blocked, e.Excluded)
}

// Sentence is the error for a person.
func (e *ExhaustedError) Sentence() string {
	return fmt.Sprintf("Cannot start the screen: this node has no free X display (%s to %s are in use). "+
		"Widen `displays` in the plugin's config or place the screen on another node.", e.Band.First, e.Band.Last)
}

// Claim picks a number: preferred first, if it is in the band and free now, then the lowest that is free. Numbers
// in not are never picked; a start whose server could not bind its number tries again without it (D4).
//
// Files of a dead server are removed on the way where this process may do so; everything else is passed over.
// An [ExhaustedError] means that nothing is left.
func (c *Claims) Claim(ctx context.Context, preferred Number, not ...Number) (*Claim, error) {
	dir, err := c.Node.Sub("displays")
	if err != nil {
		return nil, fmt.Errorf("reserve display: %w", err)
	}
	defer dir.Close()
	sockets, err := c.sockets()
	if err != nil {
		return nil, fmt.Errorf("reserve display: %w", err)
	}
	exhausted := &ExhaustedError{Band: c.Band}
	for _, n := range c.candidates(preferred) {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("reserve display: %w", err)
		}
		if slices.Contains(not, n) {
			exhausted.Excluded++
			continue
		}
		// A first look without the slot keeps a full band cheap; the number that is taken is looked at again.
		if _, ok := sockets[n]; ok {
			exhausted.InUse++
			continue
		}
		claim, err := c.try(dir, n, exhausted)
		if claim != nil || err != nil {
			return claim, err
		}
	}
	return nil, fmt.Errorf("reserve display: %w", exhausted)
}

// Free counts the numbers that a start could have now, numbers claimed by a start in progress included.
func (c *Claims) Free() (int, error) { return c.FreeIn(c.Band) }

func (c *Claims) candidates(preferred Number) []Number {
	all := slices.Collect(c.Band.All())
	if c.Band.Contains(preferred) {
		all = slices.DeleteFunc(all, func(n Number) bool { return n == preferred })
		all = slices.Insert(all, 0, preferred)
	}
	return all
}

// try takes n if it is free, or can be made free, now that no other start of ours can take it.
func (c *Claims) try(dir *slot.Dir, n Number, exhausted *ExhaustedError) (*Claim, error) {
	held, err := dir.Try(strconv.Itoa(int(n)))
	if errors.Is(err, slot.ErrHeld) {
		exhausted.Starting++
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reserve display %s: %w", n, err)
	}
	claim := &Claim{number: n, slot: held}
	status, err := c.Inspect(n)
	if err != nil {
		held.Release()
		return nil, fmt.Errorf("reserve display: %w", err)
	}
	if status.State == Stale {
		claim.cleared, err = c.clear(n)
		if err != nil {
			// Not ours to remove, or it changed under our hands: both mean another number.
			status.State = Blocked
		} else {
			status.State = Free
		}
	}
	if status.State == Free {
		return claim, nil
	}
	held.Release()
	if status.State == InUse {
		exhausted.InUse++
	} else {
		exhausted.Blocked++
	}
	return nil, nil
}
