// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/screen"
)

// L7: what an agent presses is released when a human takes over in the middle, and
// the agent hears of it (L6).
func TestL7AgentInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := make(chan error)
		drag := action.Drag{Path: []action.Point{{X: 0, Y: 0}, {X: 80, Y: 80}}, Modifiers: "ctrl"}
		go func() { done <- w.Do(t.Context(), w.epoch(), action.List{action.Wait{MS: 1}, drag}) }()
		w.x.await(func() bool { return len(w.x.inputsLocked()) == 4 })
		w.take(t, "a")
		var held *lease.HeldError
		var act *ActError
		if err := <-done; !errors.As(err, &held) || !errors.As(err, &act) || act.Done != 1 {
			t.Errorf("%v", err)
		}
		got := w.x.inputs()
		want := slices.Concat(keyMessage(false, 0xffe3), pointerMessage(0, 10, 10))
		if !bytes.HasSuffix(joined(got), want) || len(got) != 6 {
			t.Errorf("%x", got)
		}
		w.Close()
	})
}

// L6: an action needs the present epoch, before and after; nothing of it happens
// otherwise.
func TestL6Epoch(t *testing.T) {
	w := newWorld(t)
	tap := action.List{action.Key{Keys: "q"}}
	old := w.epoch()
	w.take(t, "a")
	var held *lease.HeldError
	if err := w.Do(t.Context(), w.epoch(), tap); !errors.As(err, &held) {
		t.Errorf("while a human holds: %v", err)
	}
	w.keeper.Release("a")
	var changed *lease.ChangedError
	for _, epoch := range []lease.Epoch{0, old, old + 1, w.epoch() + 1} {
		if err := w.Do(t.Context(), epoch, tap); !errors.As(err, &changed) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	if got := w.x.inputs(); len(got) > 0 {
		t.Errorf("%x", got)
	}
	if err := w.Do(t.Context(), w.epoch(), tap); err != nil {
		t.Error(err)
	}
}

// LSE-01: a whole take-and-return during a call is noticed.
func TestLSE01TakeAndReturnInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := make(chan error)
		go func() { done <- w.Do(t.Context(), w.epoch(), action.List{action.Wait{MS: 2000}}) }()
		time.Sleep(500 * time.Millisecond)
		w.take(t, "a")
		w.keeper.Release("a")
		var changed *lease.ChangedError
		var held *lease.HeldError
		if err := <-done; !errors.As(err, &changed) && !errors.As(err, &held) {
			t.Errorf("%v", err)
		}
		w.Close()
	})
}

// Actions are checked against the desktop before the first of them is done.
func TestDoChecksFirst(t *testing.T) {
	w := newWorld(t)
	var faults screen.Faults
	for _, list := range []action.List{
		{action.Key{Keys: "q"}, action.Move{Point: action.Point{X: 800, Y: 0}}},
		{action.Key{Keys: "q"}, action.Key{Keys: "nokey"}},
	} {
		if err := w.Do(t.Context(), w.epoch(), list); !errors.As(err, &faults) {
			t.Errorf("%v", err)
		}
	}
	if got := w.x.inputs(); len(got) > 0 {
		t.Errorf("%x", got)
	}
	w.x.mu.Lock()
	w.x.gone = true
	w.x.mu.Unlock()
	w.gate.mu.Lock()
	w.gate.drop()
	w.gate.mu.Unlock()
	if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "q"}}); err == nil {
		t.Error("done on a screen that is gone")
	}
}

// A caller that leaves leaves nothing pressed behind.
func TestDoCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- w.Do(ctx, w.epoch(), action.List{action.Drag{Path: []action.Point{{X: 0, Y: 0}, {X: 80, Y: 80}}, Modifiers: "shift"}})
		}()
		w.x.await(func() bool { return len(w.x.inputsLocked()) == 5 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if got := joined(w.x.inputs()); !bytes.HasSuffix(got, slices.Concat(keyMessage(false, 0xffe1), pointerMessage(0, 20, 20))) {
			t.Errorf("%x", got)
		}
		w.Close()
	})
}

// LSE-01, L6: also a change that no message met, before the answer, is noticed.
func TestLSE01CheckedAtTheEnd(t *testing.T) {
	var w *world
	w = newWorld(t, func(o *Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			w.take(t, "a")
			w.keeper.Free()
			return dial(ctx)
		}
	})
	var changed *lease.ChangedError
	if err := w.Do(t.Context(), w.epoch(), nil); !errors.As(err, &changed) {
		t.Errorf("%v", err)
	}
}

// X34: the pace of an agent's input is one for all its calls: many short ones are not
// quicker than a long one.
func TestX34AgentPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begin := time.Now()
		for range 30 { // of 200 messages each
			if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "q", Count: 100}}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 4*time.Second {
			t.Errorf("6000 messages took %s", took)
		}
		w.Close()
	})
}
