// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// keptEvents bounds how far back a reader can start.
const keptEvents = 128

// journal keeps the newest events and wakes those who follow. Sequence numbers start
// at the microsecond of the supervisor's start, so they grow across supervisors.
type journal struct {
	mu      sync.Mutex // guards all below
	last    uint64
	events  []control.Event
	changed chan struct{} // closed and replaced at each event
}

func newJournal() *journal {
	return &journal{last: uint64(time.Now().UnixMicro()), changed: make(chan struct{})}
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
