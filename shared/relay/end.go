// SPDX-License-Identifier: MPL-2.0

package relay

import "fmt"

// Code says why a viewer's stream ended, as a WebSocket close code (RFC 6455
// section 7.4). A plain stream just ends; its caller reads the End.
type Code int

// Codes of the ends (rule R2).
const (
	Normal       Code = 1000 // the viewer left on purpose: it hands back (rule L9)
	GoingAway    Code = 1001 // the same: the page was closed
	NotFrameable Code = 1003 // it sent what cannot be carried
	Abnormal     Code = 1006 // the connection broke; never sent
	Faulty       Code = 1011 // the relay's own fault
	TryLater     Code = 1013 // a limit is reached
	Taken        Code = 4000 // another person took the screen
	Gone         Code = 4001 // there is no screen any more
	Replaced     Code = 4002 // the same viewer came with a newer stream
	NotWatchable Code = 4003 // only the holder sees the screen for now
	BadTicket    Code = 4401
	Foreign      Code = 4403 // a page of another site; refused before the accept
)

// End is how a viewer's stream ended.
type End struct {
	Code   Code
	Reason string // a short sentence for a person, without secrets
	// Cause is the fault behind it, nil when it was nobody's.
	Cause error
}

// Deliberate reports whether the viewer left on purpose, which hands the screen
// back if it held it.
func (e End) Deliberate() bool { return e.Code == Normal || e.Code == GoingAway }

func (e End) String() string {
	text := fmt.Sprintf("%d %s", e.Code, e.Reason)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}
