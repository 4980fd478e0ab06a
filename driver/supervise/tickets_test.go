// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"errors"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

func anybody(ticket.Grant) error { return nil }

// R1, SEC-06: a ticket says in this process alone what it gives, opens one view, and none
// once it was revoked. A screen that is not ready gives none.
func TestR1Tickets(t *testing.T) {
	cold := newRig(t, nil)
	if _, err := cold.client.MintTicket(t.Context(), control.TicketRequest{}); !isKind(err, control.Busy) {
		t.Errorf("before the desktop is there: %v", err)
	}
	r, _ := newViewable(t)
	minted, err := r.client.MintTicket(t.Context(), control.TicketRequest{Mode: control.Control, Viewer: "ann"})
	must(t, err)
	if len(minted.Secret) != 43 || minted.Viewer != lease.ViewerID("ann").Handle() || minted.Mode != control.Control || minted.Address != "" || minted.URL() != "" {
		t.Errorf("%+v", minted)
	}
	id, grant, err := r.supervisor.tickets.Redeem(minted.Secret, anybody)
	if err != nil || string(id) != minted.ID || grant != (ticket.Grant{Mode: ticket.Control, Viewer: "ann"}) {
		t.Errorf("%s, %+v, %v", id, grant, err)
	}
	if _, _, err := r.supervisor.tickets.Redeem(minted.Secret, anybody); !errors.Is(err, ticket.ErrRefused) {
		t.Errorf("used twice: %v", err)
	}
	watch, err := r.client.MintTicket(t.Context(), control.TicketRequest{})
	must(t, err)
	if watch.Mode != control.Watch || watch.Viewer == "" {
		t.Errorf("by default: %+v", watch)
	}
	must(t, r.client.RevokeTicket(t.Context(), watch.ID))
	if _, _, err := r.supervisor.tickets.Redeem(watch.Secret, anybody); !errors.Is(err, ticket.ErrRefused) {
		t.Errorf("revoked: %v", err)
	}
	if err := r.client.RevokeTicket(t.Context(), watch.ID); !isKind(err, control.NotFound) {
		t.Errorf("revoked again: %v", err)
	}
}

// R1: all tickets of a screen end at once, each of them is written down, and where there is
// none that is said.
func TestR1RevokeAllTickets(t *testing.T) {
	r, _ := newViewable(t)
	var minted []control.Ticket
	for range 2 {
		one, err := r.client.MintTicket(t.Context(), control.TicketRequest{})
		must(t, err)
		minted = append(minted, one)
	}
	must(t, r.client.RevokeTicket(t.Context(), control.AllTickets))
	text, err := r.supervisor.trail.log.Read()
	must(t, err)
	for _, one := range minted {
		if _, _, err := r.supervisor.tickets.Redeem(one.Secret, anybody); !errors.Is(err, ticket.ErrRefused) {
			t.Errorf("revoked: %v", err)
		}
		if n := strings.Count(string(text), `"ticket":"`+one.ID+`"`); n != 2 {
			t.Errorf("the audit names ticket %s %d times, want its begin and its end", one.ID, n)
		}
	}
	if err := r.client.RevokeTicket(t.Context(), control.AllTickets); !isKind(err, control.NotFound) {
		t.Errorf("revoked again: %v", err)
	}
}

// X39: who made a ticket, and who ended it, is written down; its secret is not.
func TestX39Tickets(t *testing.T) {
	r, _ := newViewable(t)
	minted, err := r.client.MintTicket(t.Context(), control.TicketRequest{Viewer: "ann"})
	must(t, err)
	must(t, r.client.RevokeTicket(t.Context(), minted.ID))
	text, err := r.supervisor.trail.log.Read()
	must(t, err)
	for _, want := range []string{`"act":"ticket_minted","door":"operator"`, `"act":"ticket_revoked"`, `"ticket":"` + minted.ID + `"`, `"viewer":"` + string(minted.Viewer) + `"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the audit lacks %s", want)
		}
	}
	if strings.Contains(string(text), string(minted.Secret)) || strings.Contains(string(text), `"ann"`) {
		t.Error("the audit gives power")
	}
}

// X34: ten a minute for each door, and the refusal says what to do.
func TestX34Mints(t *testing.T) {
	r, _ := newViewable(t)
	for range 10 {
		_, err := r.client.MintTicket(t.Context(), control.TicketRequest{})
		must(t, err)
	}
	if _, err := r.client.MintTicket(t.Context(), control.TicketRequest{}); !isKind(err, control.Busy) || !strings.Contains(err.Error(), "wait a minute") {
		t.Errorf("the eleventh: %v", err)
	}
}
