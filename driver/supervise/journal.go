// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// keptEvents bounds how far back a reader can start.
const keptEvents = 128

// journal keeps the newest events and wakes those who follow.
type journal struct {
	mu      sync.Mutex // guards all below
	last    uint64
	events  []control.Event
	changed chan struct{} // closed and replaced at each event
}

// clockStep is what is added to the last supervisor's first number when the clock has
// been set back since: more events than a supervisor has, in microseconds an hour.
const clockStep = 1 << 32

// firstNumber is where the numbers of a supervisor's events start: at the microsecond
// of its own start, and always above those of the last supervisor, which started at
// last. There are far fewer events than microseconds.
func firstNumber(now time.Time, last uint64) uint64 {
	if first := uint64(max(now.UnixMicro(), 0)); first > last {
		return first
	}
	return last + clockStep
}

// newJournal numbers events from after first.
func newJournal(first uint64) *journal {
	return &journal{last: first, changed: make(chan struct{})}
}

// add numbers and times the event and publishes it.
func (j *journal) add(e control.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Seq, e.Time = j.last, time.Now().UTC()
	j.events = append(j.events, e)
	if len(j.events) > keptEvents {
		j.events = append([]control.Event(nil), j.events[len(j.events)-keptEvents:]...)
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// after returns the kept events with a greater number, and a channel that closes when
// there are more.
func (j *journal) after(seq uint64) ([]control.Event, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, e := range j.events {
		if e.Seq > seq {
			return append([]control.Event(nil), j.events[i:]...), j.changed
		}
	}
	return nil, j.changed
}
