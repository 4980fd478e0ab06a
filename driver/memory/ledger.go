// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/driver/slot"
)

// DefaultPromiseMB is what a desktop takes on its way from nothing to ready, browser not counted: 232 MB were
// measured for the plain Xfce components, plus the X server's growth at large geometries (docs: performance, 1P).
const DefaultPromiseMB = 320

// Ledger admits starts one after the other and remembers what the admitted ones will still take, so that ten
// starts in one second do not all pass on the same figure (M4). There is one ledger per node: every process that
// opens the same directory sees the others' promises.
type Ledger struct {
	// Node is the node's slot directory, `<run_dir>/node`.
	Node *slot.Dir
	// Read says how much is available now, usually [Prober.Read].
	Read func(context.Context) Reading
}

// Promise is memory set aside for one start. It counts until Release or the death of this process.
type Promise struct {
	// Warning says in words that little is left over; empty when there is enough.
	Warning string

	held *slot.Slot
	dir  *slot.Dir
}

// Admit checks the floor and sets needMB aside in one step; a second caller waits for the first, and ctx ends
// that wait. A refusal is a [FloorError].
func (l *Ledger) Admit(ctx context.Context, floorMB, needMB int) (*Promise, error) {
	dir, err := l.Node.Sub("promises")
	if err != nil {
		return nil, fmt.Errorf("admit start: %w", err)
	}
	// Held for the few reads below only, never over a start: a hung start must not block others.
	turn, err := l.Node.Wait(ctx, "promises.lock")
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("admit start: %w", err)
	}
	defer turn.Release()
	promise, err := l.admit(ctx, dir, floorMB, needMB)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("admit start: %w", err)
	}
	return promise, nil
}

func (l *Ledger) admit(ctx context.Context, dir *slot.Dir, floorMB, needMB int) (*Promise, error) {
	promised, next, err := sum(dir)
	if err != nil {
		return nil, err
	}
	warning, err := CheckFloor(floorMB, l.Read(ctx), promised)
	if err != nil {
		return nil, err
	}
	held, err := dir.Try(strconv.Itoa(next))
	if err != nil {
		return nil, err
	}
	p := &Promise{Warning: warning, held: held, dir: dir}
	if err := held.Set([]byte(strconv.Itoa(max(0, needMB)))); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// PromisedMB is what starts in progress on this node will still take.
func (l *Ledger) PromisedMB(ctx context.Context) (int, error) {
	dir, err := l.Node.Sub("promises")
	if err != nil {
		return 0, fmt.Errorf("sum promises: %w", err)
	}
	defer dir.Close()
	turn, err := l.Node.Wait(ctx, "promises.lock")
	if err != nil {
		return 0, fmt.Errorf("sum promises: %w", err)
	}
	defer turn.Release()
	promised, _, err := sum(dir)
	if err != nil {
		return 0, fmt.Errorf("sum promises: %w", err)
	}
	return promised, nil
}

// sum adds up the promises whose makers live, removes the files of the dead, and returns a number that no file
// has. The caller holds promises.lock, so no promise is made meanwhile.
func sum(dir *slot.Dir) (promised, next int, err error) {
	names, err := dir.Names()
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		held, err := dir.Held(name)
		if err != nil {
			return 0, 0, err
		}
		if !held {
			if err := dir.Remove(name); err != nil {
				return 0, 0, err
			}
			continue
		}
		if n, err := strconv.Atoi(name); err == nil {
			next = max(next, n+1)
		}
		data, err := dir.Read(name, 16)
		if err != nil {
			// Kept between our two looks: it counts no more.
			continue
		}
		promised += parsePromise(data)
	}
	return promised, next, nil
}

// parsePromise reads a promise's file, MiB in digits. Nonsense counts as nothing: only root writes there.
func parsePromise(data []byte) int {
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return n
}

// Took lowers the promise to what the start has yet to take, once a part of it shows in the available memory.
func (p *Promise) Took(leftMB int) error {
	return p.held.Set([]byte(strconv.Itoa(max(0, leftMB))))
}

// Release ends the promise: the desktop is ready, so what it takes shows in the available memory, or the start
// was given up. Further calls do nothing.
func (p *Promise) Release() {
	// Removed before it is let go: nobody else ever takes this name while it is held.
	_ = p.dir.Remove(p.held.Name())
	p.held.Release()
	_ = p.dir.Close()
}
