// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/botscreen/botscreen/driver/slot"
)

// ticket is a place in the queue that all processes share: a numbered file whose lock its owner holds until it is
// inside or gives up.
type ticket struct {
	dir    *slot.Dir
	held   *slot.Slot
	number uint64
}

const (
	queueLock    = "queue.lock"
	ticketPrefix = "q"
	slotPrefix   = "s"
)

// takeTicket takes the place behind all others.
func takeTicket(ctx context.Context, dir *slot.Dir) (*ticket, error) {
	turn, err := dir.Wait(ctx, queueLock)
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	numbers, err := tickets(dir)
	if err != nil {
		return nil, err
	}
	t := &ticket{dir: dir}
	for _, n := range numbers {
		t.number = max(t.number, n+1)
	}
	t.held, err = dir.Try(ticketName(t.number))
	return t, err
}

// drop gives the place up. The file goes first: nobody takes this name while it is held.
func (t *ticket) drop() {
	_ = t.dir.Remove(t.held.Name())
	t.held.Release()
}

// before returns the nearest ticket before this one whose owner lives, or "". Tickets of the dead are removed.
func (t *ticket) before(ctx context.Context) (string, error) {
	// No ticket is between its making and its locking while we have the queue's lock.
	turn, err := t.dir.Wait(ctx, queueLock)
	if err != nil {
		return "", err
	}
	defer turn.Release()
	numbers, err := tickets(t.dir)
	if err != nil {
		return "", err
	}
	nearest, found := uint64(0), false
	for _, n := range numbers {
		if n >= t.number {
			continue
		}
		held, err := t.dir.Held(ticketName(n))
		if err != nil {
			return "", err
		}
		if !held {
			if err := t.dir.Remove(ticketName(n)); err != nil {
				return "", err
			}
			continue
		}
		if !found || n > nearest {
			nearest, found = n, true
		}
	}
	if !found {
		return "", nil
	}
	return ticketName(nearest), nil
}

func ticketName(n uint64) string { return ticketPrefix + strconv.FormatUint(n, 10) }

func tickets(dir *slot.Dir) ([]uint64, error) {
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, ticketPrefix)
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// hall is where this process waits: it owns the threads that sleep on other processes' locks.
//
// flock(2) cannot be called off, so a thread whose waiter gave up stays until its lock falls free; the next
// waiter uses it again. There is never more than one per slot and one per ticket waited for.
type hall struct {
	dir   *slot.Dir
	slots int

	mu sync.Mutex
	// departures, watching and offers are guarded by mu.
	departures map[string]*departure
	watching   map[int]bool
	// offers takes what a watcher gets; nil when nobody of this process is first in line.
	offers chan offer
}

// departure is the end of somebody else's ticket; err is set before done is closed.
type departure struct {
	done chan struct{}
	err  error
}

// offer is a slot that a watcher got, or why it could not.
type offer struct {
	held *slot.Slot
	err  error
}

// gone waits until nobody holds the ticket name.
func (h *hall) gone(ctx context.Context, name string) error {
	d := h.departure(name)
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *hall) departure(name string) *departure {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.departures[name]; ok {
		return d
	}
	if h.departures == nil {
		h.departures = map[string]*departure{}
	}
	d := &departure{done: make(chan struct{})}
	h.departures[name] = d
	go h.awaitDeparture(name, d)
	return d
}

func (h *hall) awaitDeparture(name string, d *departure) {
	d.err = h.dir.Gone(name)
	h.mu.Lock()
	delete(h.departures, name)
	h.mu.Unlock()
	close(d.done)
}

// enter takes a slot for the caller, who is first in line.
func (h *hall) enter(ctx context.Context, queued func()) (*Pass, error) {
	for i := range h.slots {
		held, err := h.dir.Try(slotName(i))
		if err == nil {
			return &Pass{held}, nil
		}
		if !errors.Is(err, slot.ErrHeld) {
			return nil, err
		}
	}
	queued()
	offers := h.listen()
	defer h.leave(offers)
	select {
	case o := <-offers:
		if o.err != nil {
			return nil, fmt.Errorf("wait for a slot: %w", o.err)
		}
		return &Pass{o.held}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// listen has every slot watched and returns where the first free one arrives.
func (h *hall) listen() chan offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offers = make(chan offer, 1)
	if h.watching == nil {
		h.watching = map[int]bool{}
	}
	for i := range h.slots {
		if !h.watching[i] {
			h.watching[i] = true
			go h.watch(i)
		}
	}
	return h.offers
}

// watch sleeps until slot i is free and offers it to whoever is first in line then; with nobody there it lets the
// slot go at once.
func (h *hall) watch(i int) {
	held, err := h.dir.Block(slotName(i))
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watching, i)
	select {
	case h.offers <- offer{held, err}: // never ready when offers is nil
	default:
		if held != nil {
			held.Release()
		}
	}
}

// leave ends the listening and gives back a slot that arrived too late.
func (h *hall) leave(offers chan offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offers = nil
	select {
	case o := <-offers:
		if o.held != nil {
			o.held.Release()
		}
	default:
	}
}

func slotName(i int) string { return slotPrefix + strconv.Itoa(i) }
