// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/screen"
)

// Input does what the agent wants on the screen, under the lease of the epoch it saw:
// that is checked before, for every message and after (rule L6).
func (s *supervisor) Input(ctx context.Context, _ controlserver.Caller, req control.InputRequest) (control.InputAnswer, error) {
	err := s.admit(req.Epoch)
	if err == nil {
		err = s.act(ctx, req)
	}
	if err != nil {
		return control.InputAnswer{}, inputRefusal(err)
	}
	return control.InputAnswer{Epoch: req.Epoch, Done: len(req.Actions)}, nil
}

func (s *supervisor) act(ctx context.Context, req control.InputRequest) error {
	end, err := s.begin(ctx, "act on the screen")
	if err != nil {
		return err
	}
	defer end()
	return s.relay.Do(ctx, req.Epoch, req.Actions)
}

// inputRefusal says to an agent why its actions were not done, or not all of them.
func inputRefusal(err error) error {
	refusal := control.FromLease(err)
	var faults screen.Faults
	switch {
	case refusal != nil:
	case errors.As(err, &faults):
		refusal = &control.Error{Kind: control.BadRequest, Message: "Cannot act on the screen: " + faults.Error() + ".",
			Next: "Nothing was done. Correct the actions and send them again."}
	default:
		if !errors.As(refusalOf("act on the screen", err), &refusal) {
			return err
		}
	}
	var part *relay.ActError
	if errors.As(err, &part) {
		refusal.Done = part.Done
	}
	return refusal
}
