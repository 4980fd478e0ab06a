// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// sentence is an error as the model reads it.
type sentence string

func (s sentence) Error() string { return string(s) }

// errLookFirst refuses an action that was decided on nothing, or on what may be over.
const errLookFirst = sentence("Not done: look at the screen first. Call screenshot and decide on what it shows; " +
	"since your last look, if there was one, the screen may have been in a person's hands.")

func failed(what, format string, args ...any) error {
	return sentence(what + ": " + fmt.Sprintf(format, args...))
}

// explain turns an error of a call into what the model is told: what was not done, who
// holds the screen since when, and what to do next. What it has seen counts no more when
// the screen changed hands, or may have.
func (b *Box) explain(what string, err error) error {
	var refusal *control.Error
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, context.Canceled):
		return err
	default:
		b.sight.lost(0)
		b.page.lost()
		return failed(what, "the screen cannot be reached (%v). Whether anything was done is not known. "+
			"Call screenshot to see how things stand; where that fails too, wait a little and try again.", err)
	}
	switch refusal.Kind {
	case control.HumanHasControl:
		b.sight.lost(refusal.Epoch)
		b.page.lost()
		return failed(what, "not completed (human_has_control). %s%s You can neither see nor use the screen until it is handed back. "+
			"Call wait_for_human, then screenshot, and decide again: the person may have changed what is on the screen.", refusal.Message, age(refusal.Since))
	case control.LeaseChanged:
		b.sight.lost(refusal.Epoch)
		b.page.lost()
		return failed(what, "not completed (lease_changed). A person controlled this screen since your last screenshot and gave it back. "+
			"Call screenshot and decide again: what you saw before may be gone.")
	}
	return failed(what, "not completed (%s). %s", refusal.Kind, refusal.Error())
}

// age says how long ago a time is, for a model that has no clock.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" That is %s ago.", time.Since(t).Round(time.Second))
}
