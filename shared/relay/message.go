// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

// maxText bounds a viewer's text frame in bytes.
const maxText = 256 << 10

// What a viewer that speaks of the lease is told, one JSON object in each text frame.
type (
	// hello comes first. Renewal opens the next stream after this one broke; it is empty
	// where a door vouched for the viewer.
	hello struct {
		Type    string       `json:"type"`
		Viewer  lease.Handle `json:"viewer"`
		Mode    ticket.Mode  `json:"mode"`
		Renewal string       `json:"renewal,omitempty"`
		Layout  string       `json:"layout,omitempty"` // of the desktop's keyboard
		Paste   bool         `json:"paste"`            // the screen takes text for its clipboard
	}
	// leased comes at the start and at every change.
	leased struct {
		Type    string       `json:"type"`
		Lease   lease.Public `json:"lease"`
		Holding bool         `json:"holding"` // this viewer
	}
	// asked goes to the holder: somebody wants the screen and gets it then.
	asked struct {
		Type   string           `json:"type"`
		Reason screen.Untrusted `json:"reason"`
		Until  time.Time        `json:"until"`
	}
	// asking answers a take: the holder has been asked.
	asking struct {
		Type  string    `json:"type"`
		Until time.Time `json:"until"`
	}
	denied struct {
		Type string `json:"type"`
	}
	// unsure answers a release that is not done yet: the same again does it.
	unsure struct {
		Type    string `json:"type"`
		Op      string `json:"op"`
		Message string `json:"message"`
	}
	failed struct {
		Type    string `json:"type"`
		Op      string `json:"op"`
		Message string `json:"message"`
	}
)

func leaseMessage(g ticket.Grant, l lease.Lease) leased {
	return leased{Type: "lease", Lease: l.Public(), Holding: g.Mode == ticket.Control && l.HeldBy(g.Viewer)}
}

// operation is what a viewer may say in a text frame.
type operation struct {
	Op     string           `json:"op"` // take, release, deny, paste, end_program, reload, fresh_window
	Reason screen.Untrusted `json:"reason"`
	Text   string           `json:"text"`
}

// operate does what a text frame says. It runs between two messages of the viewer's
// stream, so keys that were typed after it come after it.
func (v *viewer) operate(text []byte) {
	var o operation
	if err := json.Unmarshal(text, &o); err != nil {
		v.tell(failed{Type: "error", Message: "the text frame is no JSON object of this protocol"})
		return
	}
	if v.grant.Mode != ticket.Control {
		v.tell(failed{Type: "error", Op: o.Op, Message: "this ticket only watches"})
		return
	}
	var err error
	switch o.Op {
	case "take":
		_, err = v.relay.lease.Take(v.grant.Viewer, o.Reason, false)
	case "release":
		if ask := v.relay.options.MayRelease; ask != nil {
			if why := ask(v.grant.Viewer); why != nil {
				v.tell(unsure{Type: "unsure", Op: o.Op, Message: why.Error()})
				return
			}
		}
		_, err = v.relay.lease.Release(v.grant.Viewer)
	case "deny":
		v.relay.lease.Deny(v.grant.Viewer)
	case "paste":
		v.paste(o.Text)
	case "end_program":
		v.endProgram()
	case "reload", "fresh_window":
		v.renewPage(o.Op)
	default:
		v.tell(failed{Type: "error", Op: o.Op, Message: "unknown operation"})
	}
	var wait *lease.AskedError
	switch {
	case errors.As(err, &wait):
		v.tell(asking{Type: "asking", Until: wait.Until})
	case err != nil:
		v.relay.log.Warn("viewer's operation", "op", o.Op, "viewer", v.grant.Viewer.Handle(), "err", err)
		v.tell(failed{Type: "error", Op: o.Op, Message: "it could not be done; the node's log says why"})
	}
}
