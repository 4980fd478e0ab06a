// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// typists of a screen: three people and, last, its agent. Each types a letter of its own.
var typists = []lease.ViewerID{"a", "b", "c", "d"}

const agentTypist = 3

// wire follows what a tap says.
type wire struct {
	t     *testing.T
	tap   *helper
	marks int
	seen  []int // whose key downs, since the last mark
}

// mark takes in what was sent until now.
func (w *wire) mark() {
	w.t.Helper()
	w.marks++
	w.tap.tell(strconv.Itoa(w.marks))
	for line := w.tap.next(); line != fmt.Sprint("mark ", w.marks); line = w.tap.next() {
		w.note(line)
	}
}

// await waits for a key of one typist.
func (w *wire) await(typist int) {
	w.t.Helper()
	for !slices.Contains(w.seen, typist) {
		w.note(w.tap.next())
	}
}

func (w *wire) note(line string) {
	if letter, ok := strings.CutPrefix(line, "key 1 "); ok {
		w.seen = append(w.seen, slices.Index(typists, lease.ViewerID(letter)))
	}
}

// L6, R6, L7, RFB-05: end to end and under load, recorded on the wire before a real X server: no
// input of one epoch comes after the next was granted. Three people and an agent type
// all the time, through their own doors, while two others watch every picture.
func TestL6NoInputOfAnOldEpochOnTheWire(t *testing.T) {
	r, _, tap := newRealScreen(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, v := range typists[:agentTypist] {
		viewer, err := r.view(control.Hello{Viewer: v, Mode: control.Control})
		must(t, err)
		group.Go(func() { typeOn(ctx, viewer, rune(v[0])) })
	}
	for range 2 {
		viewer, err := r.view(control.Hello{})
		must(t, err)
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = viewer.Screenshot(ctx)
			}
		})
	}
	agent := r.agent()
	group.Go(func() { actOn(ctx, agent) })

	w := &wire{t: t, tap: tap}
	w.await(agentTypist)
	w.mark()
	holder, keys := agentTypist, 0
	for i := range 40 {
		next := agentTypist
		if i%2 == 0 {
			next = i / 2 % agentTypist // from person to person would end the loser's stream
		}
		w.seen = nil
		if next == agentTypist {
			_, err := r.client.Release(ctx, control.ReleaseRequest{Force: true})
			must(t, err)
		} else {
			r.take(typists[next])
		}
		w.mark()
		// Before the grant returned, both: first the old holder's, then the new one's.
		keys += len(w.seen)
		first := slices.Index(w.seen, next)
		for j, who := range w.seen {
			if who != holder && who != next || who == holder && first >= 0 && j > first {
				t.Fatalf("change %d from %d to %d: the wire has %v", i, holder, next, w.seen)
			}
		}
		w.seen = nil
		w.await(next)
		w.mark()
		keys += len(w.seen)
		if i := slices.IndexFunc(w.seen, func(who int) bool { return who != next }); i >= 0 {
			t.Fatalf("after the grant to %d: a key of %d", next, w.seen[i])
		}
		holder = next
	}
	t.Logf("%d keys under 40 changes of hands", keys)
}

func typeOn(ctx context.Context, v *viewing, letter rune) {
	tap := slices.Concat(key(true, letter), key(false, letter))
	for ctx.Err() == nil {
		if v.Send(slices.Repeat(tap, 5)) != nil {
			return
		}
	}
}

// actOn types as the agent whenever it may.
func actOn(ctx context.Context, agent *control.Client) {
	for ctx.Err() == nil {
		held, err := agent.Lease(ctx)
		if err != nil {
			return
		}
		_, _ = agent.Input(ctx, control.InputRequest{Epoch: held.Epoch, Actions: action.List{action.Key{Keys: "d", Count: 20}}})
	}
}
