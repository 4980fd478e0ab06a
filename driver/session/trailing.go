// SPDX-License-Identifier: MPL-2.0

package session

import (
	"sync"
	"time"
)

// trailing calls f when it is told to, but at most once in each pause, and once more after
// the last time.
type trailing struct {
	pause time.Duration
	f     func()

	mu          sync.Mutex // guards the below
	busy, again bool
}

func (t *trailing) tell() {
	t.mu.Lock()
	first := !t.busy
	t.busy, t.again = true, !first
	t.mu.Unlock()
	if first {
		t.f()
		time.AfterFunc(t.pause, t.over)
	}
}

func (t *trailing) over() {
	t.mu.Lock()
	again := t.again
	t.busy, t.again = false, false
	t.mu.Unlock()
	if again {
		t.tell()
	}
}
