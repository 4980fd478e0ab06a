// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// Wish is what the agent wants a person for (rule L13).
type Wish struct {
	Reason   screen.Untrusted
	Deadline time.Time // zero: there is none
}

// wanted goes to every viewer that speaks of the lease, at its start and at each change.
type wanted struct {
	Type   string           `json:"type"`
	Wanted bool             `json:"wanted"`
	Reason screen.Untrusted `json:"reason"`
	Until  *time.Time       `json:"until,omitempty"`
}

// Want tells the viewers what the agent wants a person for; nil: for nothing any more. It
// does not block.
func (r *Relay) Want(w *Wish) {
	message := wanted{Type: "wanted"}
	if w != nil {
		message.Wanted, message.Reason = true, w.Reason
		if !w.Deadline.IsZero() {
			message.Until = &w.Deadline
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = message
	for _, v := range r.viewers {
		v.tell(message)
	}
}

func (r *Relay) wish() wanted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}
