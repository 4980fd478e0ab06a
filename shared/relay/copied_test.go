// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// X24: what is copied on the screen goes to whoever controls it, and no other stream
// contains it: neither of two watchers, nor another person who could control it, nor one
// that does not speak of the lease. Late text of another lease goes to nobody.
func TestX24CopiedToTheHolderOnly(t *testing.T) {
	d := newDoor(t)
	holder := d.visit(t, "a", ticket.Control, leaseProtocol)
	others := []*page{
		d.visit(t, "b", ticket.Watch, leaseProtocol), d.visit(t, "c", ticket.Watch, leaseProtocol),
		d.visit(t, "d", ticket.Control, leaseProtocol), d.visit(t, "e", ticket.Watch),
	}
	nobody, _ := d.keeper.Lease()
	d.Copied(nobody.Epoch, "CANARY of the agent")
	d.take(t, "a")
	held, _ := d.keeper.Lease()
	d.Copied(held.Epoch-1, "CANARY of another lease")
	d.Copied(held.Epoch, strings.Repeat("CANARY", maxText))
	d.Copied(held.Epoch, "ä€漢 <b>")
	if got := holder.told("clipboard")["text"]; got != "ä€漢 <b>" {
		t.Errorf("the holder got %q", got)
	}
	d.take(t, "d")
	d.Copied(held.Epoch, "CANARY of the holder before")
	now, _ := d.keeper.Lease()
	d.Copied(now.Epoch, "second")
	if got := others[2].told("clipboard")["text"]; got != "second" {
		t.Errorf("the next holder got %q", got)
	}
	d.keeper.Release("d")
	back, _ := d.keeper.Lease()
	for i, p := range []*page{others[0], others[1], others[2]} {
		// All that was said before this came before it.
		for {
			said := <-p.texts
			text, _ := json.Marshal(said)
			if said["type"] == "clipboard" {
				t.Errorf("stream %d: %s", i, text)
			}
			if l, ok := said["lease"].(map[string]any); ok && l["epoch"] == float64(back.Epoch) {
				break
			}
		}
	}
	for i, p := range append(others, holder) {
		p.mu.Lock()
		if bytes.Contains(p.seen.Bytes(), []byte("CANARY")) || bytes.Contains(p.seen.Bytes(), []byte("second")) || bytes.Contains(p.seen.Bytes(), []byte("漢")) {
			t.Errorf("stream %d has it among its pixels", i)
		}
		p.mu.Unlock()
	}
}
