// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"errors"
	"sync"
	"time"
)

const (
	// outboxBytes is how much may wait for a client before the browser has to: one message
	// more is taken than fills it.
	outboxBytes = 16 << 20
	// stalled is how long a client may take nothing of a full outbox before it is cut, and
	// patience how long it may hold up the others by reading slowly.
	stalled  = 2 * time.Second
	patience = 10 * time.Second
)

var (
	errSlow      = errors.New("it does not read what it asked for")
	errBoxClosed = errors.New("it has left")
)

// outbox is what waits to be sent to one client. It is filled by the one reader of the
// browser's pipe: a client that reads slowly slows the browser down for a moment, one that
// does not read is given up.
type outbox struct {
	mu      sync.Mutex // guards all below
	queue   [][]byte
	bytes   int
	moved   time.Time     // when its client last took something
	filled  chan struct{} // has room for one: something came, or it was closed
	emptied chan struct{} // the same, for the side that fills
	closed  bool
}

func newOutbox() *outbox {
	return &outbox{moved: time.Now(), filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds a message, and waits for room where the client is only slow. After errSlow the
// box takes nothing any more.
func (o *outbox) put(msg []byte) error {
	began := time.Now()
	for {
		o.mu.Lock()
		now := time.Now()
		left := min(stalled-now.Sub(o.moved), patience-now.Sub(began))
		switch {
		case o.closed:
			o.mu.Unlock()
			return errBoxClosed
		case o.bytes < outboxBytes:
			if o.bytes == 0 {
				o.moved = now // what was not there could not be taken
			}
			o.queue = append(o.queue, msg)
			o.bytes += len(msg)
			room := o.bytes < outboxBytes
			o.mu.Unlock()
			signal(o.filled)
			if room {
				signal(o.emptied) // another may wait
			}
			return nil
		case left <= 0:
			o.mu.Unlock()
			return errSlow
		}
		o.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-o.emptied:
		case <-timer.C: // it is looked again whether it moved
		}
		timer.Stop()
	}
}

// take is the next message; false when the box is closed.
func (o *outbox) take() ([]byte, bool) {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return nil, false
		}
		if len(o.queue) > 0 {
			msg := o.queue[0]
			o.queue[0] = nil
			o.queue = o.queue[1:]
			o.mu.Unlock()
			return msg, true
		}
		o.mu.Unlock()
		<-o.filled
	}
}

// sent makes room for what was taken.
func (o *outbox) sent(n int) {
	o.mu.Lock()
	o.bytes -= n
	o.mu.Unlock()
	signal(o.emptied)
}

// progress notes that the client took something.
func (o *outbox) progress() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moved = time.Now()
}

func (o *outbox) close() {
	o.mu.Lock()
	o.closed, o.queue = true, nil
	o.mu.Unlock()
	signal(o.filled)
	signal(o.emptied)
}
