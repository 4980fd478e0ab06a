// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"errors"
	"testing"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// X18: a hand-back that somebody speaks against is a question first; the same again is the
// answer. Whoever leaves is asked nothing.
func TestX18HandBackAsksOnce(t *testing.T) {
	asked := make(chan lease.ViewerID, 8)
	d := newDoor(t, func(o *Options) {
		o.MayRelease = func(v lease.ViewerID) error {
			asked <- v
			if len(asked) > 1 {
				return nil
			}
			return errors.New("a password field is filled")
		}
	})
	holder := d.visit(t, "a", ticket.Control, leaseProtocol)
	d.take(t, "a")
	holder.say(t, `{"op":"release"}`)
	if got := holder.told("unsure"); got["op"] != "release" || got["message"] != "a password field is filled" {
		t.Errorf("the holder is told %v", got)
	}
	if held, _ := d.keeper.Lease(); !held.HeldBy("a") {
		t.Errorf("it was handed back: %+v", held)
	}
	held, changed := d.keeper.Lease()
	holder.say(t, `{"op":"release"}`)
	<-changed
	if now, _ := d.keeper.Lease(); now.Held() || now.Epoch != held.Epoch+1 {
		t.Errorf("it was not handed back: %+v", now)
	}
	if v := <-asked; v != "a" {
		t.Errorf("asked for %s", v.Handle())
	}
}
