// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// agent is a client of the agent's reserved command.
func (r *rig) agent() *control.Client {
	c := control.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := r.client.Tunnel(ctx, control.CommandAgent)
		if err == nil {
			err = control.OpenTunnel(ctx, conn, control.Hello{})
		}
		return conn, err
	})
	r.t.Cleanup(c.Close)
	return c
}

// L6, LSE-01, LSE-11: the agent's door acts under the epoch it names, before and after;
// while a person holds, and after a take and a return, nothing passes, and the refusal
// says who holds since when and what to do.
func TestL6Input(t *testing.T) {
	r, server := newViewable(t)
	agent := r.agent()
	tap := func(letter string) action.List { return action.List{action.Key{Keys: letter}} }
	seen := r.leaseNow().Epoch
	answer, err := agent.Input(t.Context(), control.InputRequest{Epoch: seen, Actions: tap("a")})
	if err != nil || answer.Epoch != seen || answer.Done != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if got := server.next() + "," + server.next(); got != "key 1 a,key 0 a" {
		t.Errorf("the screen got %s", got)
	}

	held := r.take("ann")
	_, err = agent.Input(t.Context(), control.InputRequest{Epoch: held.Epoch, Actions: tap("b")})
	refusal := asRefusal(t, err, control.HumanHasControl)
	if refusal.Epoch != held.Epoch || !refusal.Since.Equal(held.Since) || refusal.Holder != held.Holder || refusal.Next == "" || refusal.Done != 0 {
		t.Errorf("%+v under %+v", refusal, held)
	}
	back := r.release("ann")
	for _, epoch := range []lease.Epoch{seen, held.Epoch, back.Epoch + 1} {
		_, err := agent.Input(t.Context(), control.InputRequest{Epoch: epoch, Actions: tap("c")})
		if refusal := asRefusal(t, err, control.LeaseChanged); refusal.Epoch != back.Epoch || refusal.Next == "" {
			t.Errorf("%+v", refusal)
		}
	}
	_, err = agent.Input(t.Context(), control.InputRequest{Actions: tap("d")})
	asRefusal(t, err, control.BadRequest)

	if _, err := agent.Input(t.Context(), control.InputRequest{Epoch: back.Epoch, Actions: tap("e")}); err != nil {
		t.Fatal(err)
	}
	if got := server.next(); got != "key 1 e" {
		t.Errorf("the screen got %q next", got)
	}
}

// A takeover in the middle of a list ends it; what had been done is counted and what was
// down is released.
func TestL7InputInterrupted(t *testing.T) {
	r, server := newViewable(t)
	agent := r.agent()
	ended := make(chan error, 1)
	go func() {
		_, err := agent.Input(context.Background(), control.InputRequest{Epoch: r.leaseNow().Epoch, Actions: action.List{
			action.Key{Keys: "a"}, action.Click{Point: action.Point{X: 1, Y: 1}}, action.Wait{MS: 50_000}, action.Key{Keys: "b"},
		}})
		ended <- err
	}()
	server.says("buttons 1")
	server.says("buttons 0")
	r.take("ann")
	if refusal := asRefusal(t, <-ended, control.HumanHasControl); refusal.Done != 2 {
		t.Errorf("%+v", refusal)
	}
}

// What is wrong with the actions is said at once, before any is done.
func TestInputFaults(t *testing.T) {
	r, _ := newViewable(t)
	_, err := r.agent().Input(t.Context(), control.InputRequest{Epoch: r.leaseNow().Epoch, Actions: action.List{
		action.Key{Keys: "nokey"}, action.Move{Point: action.Point{X: 8000, Y: 1}},
	}})
	if refusal := asRefusal(t, err, control.BadRequest); refusal.Done != 0 {
		t.Errorf("%+v", refusal)
	}
	starting := newRig(t, nil)
	_, err = starting.agent().Input(t.Context(), control.InputRequest{Epoch: starting.leaseNow().Epoch, Actions: action.List{action.Key{Keys: "a"}}})
	asRefusal(t, err, control.Busy)
}

func asRefusal(t *testing.T, err error, kind control.Kind) *control.Error {
	t.Helper()
	var refusal *control.Error
	if !errors.As(err, &refusal) || refusal.Kind != kind {
		t.Fatalf("%v, want %s", err, kind)
	}
	return refusal
}
