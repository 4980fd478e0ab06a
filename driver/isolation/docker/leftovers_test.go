// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/screen"
)

// Issue 7: what a screen left behind an engine that went away, and what no record tells of
// any more, goes at its next start; what other screens and other drivers have stays.
func TestSweepScreen(t *testing.T) {
	b, other := boundary(t), boundary(t)
	reference := emptyImage(t, b)
	order, neighbour := newOrder(t, reference), newOrder(t, reference)
	neighbour.ID.Profile = "neighbour"
	lost, kept, foreign := launched(t, b, order), launched(t, b, neighbour), launched(t, other, newOrder(t, reference))
	must(t, b.SweepScreen(bounded(t), order.ID))
	awaitDone(t, lost)
	if left := containersOf(t, b, order.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if !kept.record.Session.Alive() || !foreign.record.Session.Alive() {
		t.Error("another screen's container was removed")
	}
	must(t, b.SweepScreen(bounded(t), order.ID)) // there is nothing now
}

func (i imaged) SweepScreen(ctx context.Context, id screen.ID) error {
	return i.Boundary.(isolation.ScreenSweeper).SweepScreen(ctx, id)
}

// The whole driver does so before it starts a screen.
func TestStartSweepsItsScreen(t *testing.T) {
	m := newManaged(t)
	order := newOrder(t, emptyImage(t, m.b))
	order.ID = screen.ID{Namespace: m.request().Namespace, Profile: m.request().Spec.Profile}
	lost := launched(t, m.b, order)
	m.start()
	awaitDone(t, lost)
	if left := containersOf(t, m.b, order.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// A removal waits for an engine that restarts.
func TestRemovalWaitsForTheEngine(t *testing.T) {
	e := newEngine(t, true)
	b := boundaryAt(t, e.endpoint)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	must(t, s.Kill(bounded(t)))
	e.stop()
	removed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), awayPatience)
	defer cancel()
	go func() { removed <- s.Remove(ctx) }()
	e.start()
	must(t, <-removed)
	if left := containersOf(t, b, s.record.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// M5: an engine that goes away in the middle of an answer is away, whatever its client calls
// that, and the start is tried again.
func TestEngineGoesAway(t *testing.T) {
	b, err := New("unix:///nowhere.sock", "me")
	must(t, err)
	for _, cause := range []error{unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		// A connection says of itself that it is broken for good.
		broken := &net.OpError{Op: "read", Net: "unix", Err: cause}
		err := errors.Join(fmt.Errorf("create container: %w", broken), fmt.Errorf("remove container: %w", b.explain(broken)))
		if !task.Transient(err) {
			t.Errorf("%v: no other attempt", err)
		}
	}
	if task.Transient(b.explain(errors.New("no such image"))) {
		t.Error("everything is tried again")
	}
}
