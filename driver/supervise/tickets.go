// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"

	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// MintTicket makes a ticket for the screen's viewer listener. It is good in the life of
// this supervisor alone, as the streams are.
func (s *supervisor) MintTicket(ctx context.Context, caller controlserver.Caller, req control.TicketRequest) (control.Ticket, error) {
	end, err := s.begin(ctx, "make a ticket")
	if err != nil {
		return control.Ticket{}, err
	}
	end()
	grant := ticket.Grant{Mode: ticket.Mode(req.Mode), Viewer: req.Viewer}
	if req.Mode == "" {
		grant.Mode = ticket.Watch
	}
	minted, err := s.tickets.Mint(doorOf(caller), grant)
	if errors.Is(err, ticket.ErrBusy) {
		return control.Ticket{}, &control.Error{Kind: control.Busy,
			Message: "Cannot make a ticket: too many were made in the last minute, or are open.",
			Next:    "Use the ones there are, or wait a minute."}
	}
	if err != nil {
		return control.Ticket{}, &control.Error{Kind: control.BadRequest, Message: "Cannot make a ticket: " + err.Error() + "."}
	}
	s.auditTicket(audit.TicketMinted, caller, minted.ID, minted.Grant.Viewer.Handle())
	// Whoever shows it comes through the listener, which knows nobody.
	s.trail.came(minted.Grant.Viewer.Handle(), audit.Peer{Door: audit.Ticket, TicketID: string(minted.ID)})
	return control.Ticket{
		ID: string(minted.ID), Secret: minted.Secret, Mode: control.ViewMode(minted.Grant.Mode),
		Viewer: minted.Grant.Viewer.Handle(), Expires: minted.Expires, Address: s.viewer.address(),
	}, nil
}

// RevokeTicket ends a ticket and the view it opened, at once; control.AllTickets ends all
// there are.
func (s *supervisor) RevokeTicket(_ context.Context, caller controlserver.Caller, id string) error {
	if id == control.AllTickets {
		return s.revokeAll(caller)
	}
	if !s.relay.Revoke(ticket.ID(id)) {
		return &control.Error{Kind: control.NotFound, Message: "There is no such ticket, and no view that it opened."}
	}
	s.auditTicket(audit.TicketRevoked, caller, ticket.ID(id), "")
	return nil
}

func (s *supervisor) revokeAll(caller controlserver.Caller) error {
	ended := s.relay.RevokeAll()
	if len(ended) == 0 {
		return &control.Error{Kind: control.NotFound, Message: "There is no open ticket, and no view that one opened."}
	}
	for _, id := range ended {
		s.auditTicket(audit.TicketRevoked, caller, id, "")
	}
	return nil
}

// auditTicket writes down who made or ended a ticket, and for whom it was (X39).
func (s *supervisor) auditTicket(act audit.Act, caller controlserver.Caller, id ticket.ID, viewer lease.Handle) {
	by := cameBy(caller)
	by.TicketID = string(id)
	s.auditAct(act, by, viewer, "")
}

// doorOf names a caller's door for the limits that are per door (threats.md X34): the
// operator's socket by the uid behind it, all exec streams together.
func doorOf(caller controlserver.Caller) string {
	if caller.UID < 0 {
		return "exec"
	}
	return fmt.Sprintf("uid %d", caller.UID)
}
