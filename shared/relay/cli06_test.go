// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"testing"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// CLI-06: the way to the screen breaks 20 times in a row. Each time the viewer reads that
// it is gone for now and comes back with what it was given for that; the person keeps the
// screen, and no ticket is spent beyond those.
func TestCLI06ViewersComeBack(t *testing.T) {
	d := newDoor(t)
	secret := d.mint(t, "ann", ticket.Control)
	d.take(t, "ann")
	epoch := d.epoch()
	for round := range 20 {
		p := d.enter(t, "ann", secret, leaseProtocol)
		secret = ticket.Secret(p.told("hello")["renewal"].(string))
		d.x.output(round).conn.Close()
		ended(t, p, Gone)
	}
	p := d.enter(t, "ann", secret, leaseProtocol)
	if m := p.told("lease"); m["holding"] != true || d.epoch() != epoch {
		t.Errorf("after 20 breaks: %v, epoch %d, want %d", m, d.epoch(), epoch)
	}
}
