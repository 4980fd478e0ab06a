// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/rfb"
)

// ActError says how far a list of actions got before it could not go on.
type ActError struct {
	Done int // actions that were done whole
	Err  error
}

func (e *ActError) Error() string { return fmt.Sprintf("after %d actions: %v", e.Done, e.Err) }
func (e *ActError) Unwrap() error { return e.Err }

// Do does the agent's actions in order, under the lease of the epoch it last saw. That
// is checked before anything happens, for every message on its way, and again at the
// end: an error that contains *lease.HeldError or *lease.ChangedError means that the
// caller must look again, whatever was done (rule L6). One that is screen.Faults says
// what is wrong with the actions; nothing was done then. Calls at the same time take
// turns. Whatever happens, nothing of the agent's stays pressed.
func (r *Relay) Do(ctx context.Context, seen lease.Epoch, list action.List) error {
	if err := r.lease.Admit(seen); err != nil {
		return err
	}
	if err := list.Check(rfb.Size{}); err != nil {
		return err
	}
	select {
	case r.acting <- struct{}{}:
		defer func() { <-r.acting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	size, err := r.gate.ready(ctx)
	if err != nil {
		return err
	}
	if err := list.Check(size); err != nil {
		return err
	}
	if err := r.act(ctx, seen, list); err != nil {
		r.gate.release(nil)
		return err
	}
	return r.lease.Admit(seen)
}

func (r *Relay) act(ctx context.Context, seen lease.Epoch, list action.List) error {
	for done, a := range list {
		for step := range a.Steps() {
			if err := r.step(ctx, seen, step); err != nil {
				return &ActError{Done: done, Err: err}
			}
		}
	}
	return nil
}

func (r *Relay) step(ctx context.Context, seen lease.Epoch, step action.Step) error {
	if step.Message != nil {
		if err := r.pace.take(ctx); err != nil {
			return err
		}
		if err := r.gate.fromAgent(ctx, seen, step.Message); err != nil {
			return err
		}
	}
	if step.Pause == 0 {
		return nil
	}
	return r.pause(ctx, seen, step.Pause)
}

// pause waits, but not for a screen that has changed hands.
func (r *Relay) pause(ctx context.Context, seen lease.Epoch, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		changing := r.lease.Changing()
		if err := r.lease.Admit(seen); err != nil {
			return err
		}
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changing:
		}
	}
}
