// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"net/http"

	"github.com/botscreen/botscreen/shared/control"
)

func mintTicket(b Ticketer) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.TicketRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		if err := req.Check(); err != nil {
			return nil, &control.Error{Kind: control.BadRequest, Message: "Cannot make a ticket: " + err.Error() + "."}
		}
		return b.MintTicket(r.Context(), caller, req)
	}
}

func revokeTicket(b Ticketer) handler {
	return func(_ http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		return struct{}{}, b.RevokeTicket(r.Context(), caller, r.PathValue("id"))
	}
}
