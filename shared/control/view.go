// SPDX-License-Identifier: MPL-2.0

package control

import (
	"net/url"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

// ViewRequest says how a viewer sees a screen.
type ViewRequest struct {
	Mode ViewMode // empty: Watch
	// Web asks for HTTP in place of RFB: the viewer's WebSocket, for a browser.
	Web bool
}

// ParseViewRequest reads mode=watch or control, and web=true. All faults are reported at
// once; the error is screen.Faults.
func ParseViewRequest(q url.Values) (ViewRequest, error) {
	var faults screen.Faults
	r := ViewRequest{Mode: ViewMode(q.Get("mode"))}
	if r.Mode != "" && r.Mode != Watch && r.Mode != Control {
		faults.Add("mode", string(r.Mode), "is not one of watch, control")
	}
	switch text := q.Get("web"); text {
	case "", "false":
	case "true":
		r.Web = true
	default:
		faults.Add("web", text, "is not one of true, false")
	}
	return r, faults.Err()
}

// TicketRequest asks for a ticket, which opens one viewer's stream at the viewer listener
// (rule R1).
type TicketRequest struct {
	Mode ViewMode `json:"mode,omitempty"` // empty: Watch
	// Viewer is whom the ticket is for; empty: somebody whose id nobody can guess.
	Viewer lease.ViewerID `json:"viewer,omitempty"`
}

// Check reports all that is wrong with the request, as screen.Faults.
func (r TicketRequest) Check() error {
	var faults screen.Faults
	if r.Mode != "" && r.Mode != Watch && r.Mode != Control {
		faults.Add("mode", string(r.Mode), "is not one of watch, control")
	}
	if r.Viewer != "" && !r.Viewer.Valid() {
		faults.Add("viewer", "[redacted]", "must be 1 to 128 printable ASCII characters") // it is a capability (L12)
	}
	return faults.Err()
}

// AllTickets stands for every open ticket of a screen where one is revoked.
const AllTickets = "all"

// Ticket is a new ticket. Its secret is told this once.
type Ticket struct {
	ID      string        `json:"id"` // for its revocation; it opens nothing
	Secret  ticket.Secret `json:"secret"`
	Mode    ViewMode      `json:"mode"`
	Viewer  lease.Handle  `json:"viewer"`
	Expires time.Time     `json:"expires"`
	// Address is where the screen's viewer listener is, such as https://192.0.2.7:23000;
	// empty where it has none.
	Address string `json:"address,omitempty"`
}

// URL is where a browser sees the screen with this ticket, empty without an address. The
// ticket stands behind the #, which browsers send to nobody (SEC-07).
func (t Ticket) URL() string {
	if t.Address == "" {
		return ""
	}
	return t.Address + "/#ticket=" + string(t.Secret)
}
