// SPDX-License-Identifier: MPL-2.0

package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
)

// FromLease says a refusal of package lease to a person. Any other error is nil:
// it is no refusal.
func FromLease(err error) *Error {
	var held *lease.HeldError
	var changed *lease.ChangedError
	var asked *lease.AskedError
	switch {
	case errors.As(err, &held):
		return fromHeld(held)
	case errors.As(err, &changed) && changed.Seen == 0:
		return &Error{Kind: BadRequest, Epoch: changed.Now,
			Message: "An action needs the epoch of the screen it was decided on.",
			Next:    "Send the epoch of the last screenshot, lease or answer."}
	case errors.As(err, &changed):
		return &Error{Kind: LeaseChanged, Epoch: changed.Now,
			Message: "The screen changed hands since this was decided, so it was not done.",
			Next:    "Take a new screenshot and decide again."}
	case errors.As(err, &asked):
		return &Error{Kind: Busy, Holder: lease.Human,
			Message: fmt.Sprintf("The person who controls this screen has been asked and has until %s to refuse.", clock(asked.Until)),
			Next:    "Wait: without a refusal it is yours then."}
	case errors.Is(err, lease.ErrViewerID):
		return &Error{Kind: BadRequest, Message: "A viewer id must be 1 to 128 printable ASCII characters."}
	}
	return nil
}

// FromHeldStop says to a person why a screen is not stopped (rule L11).
func FromHeldStop(err error) *Error {
	e := FromLease(err)
	if e != nil && e.Kind == HumanHasControl {
		e.Kind = Held
		e.Next = "Wait for the hand-back, or stop it with `botscreen stop --force`."
	}
	return e
}

// TakenOver is the end of what a takeover ended.
func TakenOver(what string) *Error {
	return &Error{Kind: HumanHasControl, Holder: lease.Human,
		Message: fmt.Sprintf("A person took control of this screen, so %s was ended.", what),
		Next:    "Wait for the hand-back."}
}

func fromHeld(held *lease.HeldError) *Error {
	l := held.Lease
	e := &Error{Kind: HumanHasControl, Holder: l.Holder, Since: l.Since, Epoch: l.Epoch,
		Message: fmt.Sprintf("A person has controlled this screen since %s.", clock(l.Since)),
		Next:    "Wait for the hand-back or ask with `botscreen release --force`."}
	switch {
	case l.Viewer == "":
		e.Message = fmt.Sprintf("It cannot be told who controls this screen, so it counts as a person's since %s: %s.", clock(l.Since), l.Reason)
		e.Next = "Free it with `botscreen release --force`."
	case held.Left:
		e.Message = fmt.Sprintf("The person who has controlled this screen since %s left without handing it back.", clock(l.Since))
	}
	return e
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
