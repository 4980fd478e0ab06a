// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/botscreen/botscreen/driver/slot"
)

// DefaultGateWait is how long a start waits for its turn.
const DefaultGateWait = 5 * time.Minute

// Gate lets at most Slots desktops of this node bring themselves up at once, in the order they came; with as many
// slots as cores twenty starts are done in half the time of a stampede (docs: performance, 6b).
//
// The first in line of every process has a ticket in a queue that all processes share, so no process overtakes
// another one for ever. Waiting sleeps in the kernel; a process that dies frees what it had.
type Gate struct {
	// Node is the node's slot directory, `<run_dir>/node`.
	Node *slot.Dir
	// Slots is how many may be inside; 0 means one per core.
	Slots int
	// MaxWait bounds the wait; 0 means DefaultGateWait.
	MaxWait time.Duration

	once    sync.Once
	line    *semaphore.Weighted // one head of the line per process, first come first served
	hall    *hall
	openErr error
}

// Pass is the right to bring a desktop up, until Release or the death of this process.
type Pass struct {
	held *slot.Slot
}

// Release lets the next start in. Further calls do nothing.
func (p *Pass) Release() { p.held.Release() }

// GateTimeoutError says that a start's turn did not come in time.
type GateTimeoutError struct {
	Waited time.Duration
	Slots  int
}

func (e *GateTimeoutError) Error() string {
	return fmt.Sprintf("no turn within %s at a gate of %d", e.Waited, e.Slots)
}

// Timeout is true: package net's convention.
func (e *GateTimeoutError) Timeout() bool { return true }

// Sentence is the error for a person.
func (e *GateTimeoutError) Sentence() string {
	return fmt.Sprintf("The screen did not get its turn to start within %s: this node brings up %d at a time and others were before it. "+
		"Place it on another node, or start fewer screens at once.", e.Waited, e.Slots)
}

// Enter waits for this start's turn. queued, if not nil, is called once when it has to wait, from the caller's
// goroutine. The error is a [GateTimeoutError] after MaxWait, or wraps the context's cause.
func (g *Gate) Enter(ctx context.Context, queued func()) (*Pass, error) {
	g.once.Do(g.open)
	if g.openErr != nil {
		return nil, fmt.Errorf("pass the start gate: %w", g.openErr)
	}
	wait := g.MaxWait
	if wait == 0 {
		wait = DefaultGateWait
	}
	late := &GateTimeoutError{Waited: wait, Slots: g.slots()}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, late)
	defer cancel()
	pass, err := g.enter(ctx, sync.OnceFunc(func() {
		if queued != nil {
			queued()
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("pass the start gate: %w", err)
	}
	return pass, nil
}

// open runs once: the directory stays open as long as the process, like the threads that sleep on its files.
func (g *Gate) open() {
	g.line = semaphore.NewWeighted(1)
	dir, err := g.Node.Sub("gate")
	g.openErr = err
	g.hall = &hall{dir: dir, slots: g.slots()}
}

func (g *Gate) slots() int {
	if g.Slots > 0 {
		return g.Slots
	}
	return runtime.NumCPU()
}

func (g *Gate) enter(ctx context.Context, queued func()) (*Pass, error) {
	if !g.line.TryAcquire(1) {
		queued()
		if err := g.line.Acquire(ctx, 1); err != nil {
			return nil, context.Cause(ctx)
		}
	}
	defer g.line.Release(1)
	t, err := takeTicket(ctx, g.hall.dir)
	if err != nil {
		return nil, err
	}
	defer t.drop()
	for {
		name, err := t.before(ctx)
		if err != nil {
			return nil, err
		}
		if name == "" {
			return g.hall.enter(ctx, queued)
		}
		queued()
		if err := g.hall.gone(ctx, name); err != nil {
			return nil, err
		}
	}
}
