// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

// L13: who looks at the screen, now or later, reads what the agent wants, and when that is
// over.
func TestL13WantedIsShown(t *testing.T) {
	d := newDoor(t)
	early := d.visit(t, "a", ticket.Watch, leaseProtocol)
	if got := early.told("wanted"); got["wanted"] != false {
		t.Errorf("at first %v", got)
	}
	deadline := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	d.Want(&Wish{Reason: screen.Distrust("a \x1bcode"), Deadline: deadline})
	for _, p := range []*page{early, d.visit(t, "b", ticket.Control, leaseProtocol)} {
		if got := p.told("wanted"); got["wanted"] != true || got["reason"] != "a ·code" || got["until"] != "2030-01-02T03:04:05Z" {
			t.Errorf("told %v", got)
		}
	}
	d.Want(nil)
	if got := early.told("wanted"); got["wanted"] != false || got["reason"] != "" {
		t.Errorf("at the end %v", got)
	}
}
