// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// Under load: no input of one epoch reaches the screen after the next was granted.
// Three people and an agent type as fast as they may, each a key of its own; what the
// wire has recorded when a grant returns is the line that nobody older may cross.
func TestNoInputOfAnOldEpoch(t *testing.T) {
	w := newWorld(t)
	names := []lease.ViewerID{"a", "b", "c"}
	const agent = 3
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i, v := range names {
		p := w.come(t, v, ticket.Control)
		tap := bytes.Repeat(slices.Concat(keyMessage(true, uint32(i)), keyMessage(false, uint32(i))), 5)
		group.Go(func() {
			for {
				if _, err := p.conn.Write(tap); err != nil {
					return
				}
			}
		})
		defer context.AfterFunc(ctx, func() { p.conn.Close() })()
	}
	group.Go(func() {
		for ctx.Err() == nil {
			_, changed := w.keeper.Lease()
			if w.Do(ctx, w.epoch(), action.List{action.Key{Keys: "U0300", Count: 20}}) != nil {
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}
	})
	holders := []int{agent} // of each grant
	lines := []int{0}       // how much was recorded when it returned
	for i := range 90 {
		next := i / 2 % 3 // person to person would end the loser's stream
		if i%2 == 1 {
			next = agent
		}
		if next == agent {
			w.keeper.Free()
		} else {
			w.take(t, names[next])
		}
		holders = append(holders, next)
		w.x.mu.Lock()
		lines = append(lines, len(w.x.inputsLocked()))
		w.x.mu.Unlock()
		// The new holder's keys arrive: none is shut out, and none is early.
		w.x.await(func() bool {
			list := w.x.inputsLocked()
			return len(list) > 2 && slices.ContainsFunc(list[lines[len(lines)-1]:], func(m rfb.Message) bool { return typist(m) == next })
		})
	}
	cancel()
	group.Wait()
	list := w.x.inputs()
	at := 0 // the grant the key before belonged to
	for i, m := range list {
		if key, ok := m.Key(); !ok || !key.Down {
			continue
		}
		for at+1 < len(lines) && lines[at+1] <= i {
			at++
		}
		for at < len(holders) && holders[at] != typist(m) {
			at++
		}
		// A grant begins after the one before it was recorded.
		if at == len(holders) || at > 0 && lines[at-1] > i {
			t.Fatalf("message %d is a key of %d, who holds no more", i, typist(m))
		}
	}
	t.Logf("%d messages under %d grants", len(list), len(holders))
}

// Whether a message may pass is asked under the lock that a change of hands takes.
func TestAdmissionUnderTheInputLock(t *testing.T) {
	w := newWorld(t)
	asked := 0
	err := w.gate.pass(t.Context(), nil, keyMessage(true, 'x'), func() error {
		asked++
		if w.gate.mu.TryLock() {
			w.gate.mu.Unlock()
			t.Error("asked without the lock")
		}
		return nil
	})
	if err != nil || asked < 2 { // again when there is a connection
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// typist is whose key it is.
func typist(m rfb.Message) int {
	k, _ := m.Key()
	if k.Keysym > 2 {
		return 3
	}
	return int(k.Keysym)
}

// L16: a change of hands, on disk and on the wire, is done well within 250 ms.
func TestL16HandoverTime(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	w.take(t, "a")
	p.send(t, keyMessage(true, 'x'))
	w.x.await(func() bool { return len(w.x.inputsLocked()) == 1 })
	begin := time.Now()
	w.keeper.Release("a")
	if took := time.Since(begin); took > 250*time.Millisecond {
		t.Errorf("%v", took)
	}
}
