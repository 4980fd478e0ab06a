// SPDX-License-Identifier: MPL-2.0

package relay

import "github.com/botscreen/botscreen/shared/lease"

// copied goes to the holder alone: a program of the screen copied this. It is whatever a
// program says, and must be shown as text.
type copied struct {
	Type string `json:"type"` // clipboard
	Text string `json:"text"`
}

// Copied hands the screen's clipboard to whoever controls it, if that is still the lease
// of this epoch. No other stream contains it (threats.md X24).
func (r *Relay) Copied(epoch lease.Epoch, text string) {
	if len(text) > maxText {
		return
	}
	r.tellHolder(epoch, copied{Type: "clipboard", Text: text})
}
