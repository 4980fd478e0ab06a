// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"sync"
	"time"
)

// Idler is a driver that knows whether its process may end; a driver need not be one.
type Idler interface {
	// Idle says that there is nothing which this process looks after. It may be called at
	// any time.
	Idle() bool
}

// forsakenAfter is how long a process waits for an agent while it has nothing to look after.
// The next agent starts another one where it finds none.
const forsakenAfter = 10 * time.Minute

// attendance knows whether an agent is there by the calls in progress: it keeps the streams of
// fingerprints and events open as long as it lives.
type attendance struct {
	limit time.Duration
	idle  func() bool
	end   func()

	mu    sync.Mutex // guards the below
	calls int        // in progress
	began int        // ever
	alone *time.Timer
}

// attend calls end when there was no call for the limit and the process is idle then.
func attend(limit time.Duration, idle func() bool, end func()) *attendance {
	a := &attendance{limit: limit, idle: idle, end: end}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alone = time.AfterFunc(limit, a.look)
	return a
}

// call notes that a call has begun; done is for its end.
func (a *attendance) call() (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.began++
	a.alone.Stop()
	return a.done
}

func (a *attendance) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls--; a.calls == 0 {
		a.alone.Reset(a.limit)
	}
}

// look is the end of a wait without calls. One that came meanwhile has begun the wait anew.
func (a *attendance) look() {
	before := a.count()
	if idle := a.idle(); a.leaves(before, idle) {
		a.end()
	}
}

func (a *attendance) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began
}

func (a *attendance) leaves(before int, idle bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls > 0 || a.began != before {
		return false
	}
	if !idle {
		a.alone.Reset(a.limit)
	}
	return idle
}
