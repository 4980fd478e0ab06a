// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// Event is something an operator should see in a task's events. Nomad keeps only the
// newest ten, so each carries the whole picture in its annotations.
type Event struct {
	TaskID      ID
	AllocID     string
	TaskName    string
	Time        time.Time
	Message     string
	Annotations map[string]string
}

// keptEvents bounds what waits for a reader: events of a time without one are kept for
// the next, the oldest are dropped, and no task ever waits.
const keptEvents = 256

// Events hands every event to every reader. A reader that comes late first gets what
// nobody has read yet.
type Events struct {
	mu      sync.Mutex // guards all below
	next    uint64
	read    uint64 // the highest number any reader has taken
	kept    []numbered
	changed chan struct{}
}

type numbered struct {
	n     uint64
	event Event
}

func newEvents() *Events { return &Events{changed: make(chan struct{})} }

func (e *Events) publish(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	e.kept = append(e.kept, numbered{e.next, event})
	if len(e.kept) > keptEvents {
		e.kept = append([]numbered(nil), e.kept[len(e.kept)-keptEvents:]...)
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// Follow calls send for each event until ctx ends or send fails.
func (e *Events) Follow(ctx context.Context, send func(Event) error) error {
	e.mu.Lock()
	seen := e.read
	e.mu.Unlock()
	for {
		events, changed := e.after(seen)
		for _, n := range events {
			if err := send(n.event); err != nil {
				return err
			}
			seen = n.n
			e.markRead(seen)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Events) after(seen uint64) ([]numbered, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, n := range e.kept {
		if n.n > seen {
			return append([]numbered(nil), e.kept[i:]...), e.changed
		}
	}
	return nil, e.changed
}

func (e *Events) markRead(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = max(e.read, n)
}

// annotate is the picture of wire.md section 4, from what the supervisor last said.
func annotate(r *runRecord, e control.Event) map[string]string {
	a := map[string]string{
		"botscreen.state":        string(e.State),
		"botscreen.event":        string(e.Name),
		"botscreen.profile":      string(r.Profile),
		"botscreen.isolation":    string(r.Isolation),
		"botscreen.holder":       string(e.Holder),
		"botscreen.fence":        string(e.Fence),
		"botscreen.reason":       e.Reason.String(),
		"botscreen.image_digest": e.ImageDigest,
	}
	if e.Epoch != 0 {
		a["botscreen.epoch"] = formatEpoch(uint64(e.Epoch))
	}
	maps.DeleteFunc(a, func(_, value string) bool { return value == "" })
	return a
}

// stateOnly is the picture before there is a supervisor, or after it.
func stateOnly(state screen.State, name control.EventName, reason string) control.Event {
	return control.Event{Name: name, State: state, Reason: screen.Distrust(reason)}
}
