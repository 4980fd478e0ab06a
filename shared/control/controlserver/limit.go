// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"fmt"

	"github.com/botscreen/botscreen/shared/control"
)

// limits bounds what all callers together may keep busy (threats.md X34).
type limits struct {
	pictures, inputs, desks, watches, asks, waits, events, streams limit
}

func newLimits() limits {
	return limits{
		pictures: newLimit("screenshots", 1, 8),
		inputs:   newLimit("lists of actions", 1, 8),
		desks:    newLimit("questions about the desktop", 2, 8),
		watches:  newLimit("calls that wait for the screen", 4, 0),
		asks:     newLimit("calls that wait for a person", 8, 0),
		waits:    newLimit("waiting calls", 8, 0),
		events:   newLimit("event streams", 32, 0),
		streams:  newLimit("byte streams", 64, 0),
	}
}

// limit lets some run at once and some more queue for it.
type limit struct {
	what    string
	running chan struct{}
	present chan struct{} // those that run and those that queue
}

func newLimit(what string, running, queued int) limit {
	return limit{
		what:    what,
		running: make(chan struct{}, running),
		present: make(chan struct{}, running+queued),
	}
}

// enter takes a place, or refuses with busy when the queue is full.
func (l limit) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.present <- struct{}{}:
	default:
		return nil, &control.Error{Kind: control.Busy,
			Message: fmt.Sprintf("Too many %s at once: %d is the most.", l.what, cap(l.present)),
			Next:    "Wait for one to end and try again."}
	}
	select {
	case l.running <- struct{}{}:
		return func() { <-l.running; <-l.present }, nil
	case <-ctx.Done():
		<-l.present
		return nil, ctx.Err()
	}
}
