// SPDX-License-Identifier: MPL-2.0

package control

import (
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// Bounds on asking for a person (X25): an agent must not push what matters out of
// what people see.
const (
	MaxAskReason   = 300 // characters
	MaxAsksPerHour = 6
	MaxAskDeadline = 24 * time.Hour
	MaxAskWait     = 5 * time.Minute
)

// AskRequest asks for a person.
type AskRequest struct {
	// Reason is at most MaxAskReason characters; people see as much of it as of any
	// untrusted text.
	Reason string `json:"reason"`
	// Deadline is when it is no use any more, at most MaxAskDeadline away; zero is never.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Ask is the agent's open wish for a person.
type Ask struct {
	ID       string           `json:"id"`
	Reason   screen.Untrusted `json:"reason"` // the agent says this
	Since    time.Time        `json:"since"`
	Deadline time.Time        `json:"deadline,omitzero"`
}

// AskState is what became of an ask.
type AskState string

// The states of an ask; the last two are its end.
const (
	AskOpen       AskState = "open"        // nobody has come yet
	AskTaken      AskState = "taken"       // a person has control
	AskHandedBack AskState = "handed_back" // a person had control and gave it back
	AskExpired    AskState = "expired"     // the deadline passed and nobody came
)

// Over reports whether the state is final.
func (s AskState) Over() bool { return s == AskHandedBack || s == AskExpired }

// AskOutcome is an ask, what became of it, and the lease to go on with.
type AskOutcome struct {
	Ask
	State AskState     `json:"state"`
	Lease lease.Public `json:"lease"`
	// Held is how long people had control for it, once they gave it back.
	Held time.Duration `json:"held_ns,omitempty"`
	// Note is on the hold that ended it; nil where nothing is known of it.
	Note *HandOff `json:"note,omitempty"`
}

// HandOff is what an agent hears of a hold (rule L13): how long it was, which programs had
// windows and which site the browser showed, never titles, nor more of addresses than
// scheme and host (threats.md X25).
type HandOff struct {
	Held   time.Duration `json:"held_ns"`
	Before []string      `json:"before,omitempty"` // programs with windows when the person came
	After  []string      `json:"after,omitempty"`  // and when they left
	// Origins of the page in front, such as https://site.example.
	OriginBefore screen.Untrusted `json:"origin_before,omitzero"`
	OriginAfter  screen.Untrusted `json:"origin_after,omitzero"`
}
