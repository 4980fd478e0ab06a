// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// clearTimeout is a little longer than a session takes at most.
const clearTimeout = 5 * time.Second

// prepare makes the desktop ready for a person, where the job wants that: of the programs
// only the desktop's own are left, and nobody else is connected to the X server (X3). Who
// cannot have that does not get the screen.
func (s *supervisor) prepare(lease.Lease, lease.Lease) error {
	if s.config.Takeover.Takeover != screen.TakeoverClean {
		return nil
	}
	s.cutCommands()
	select {
	case <-s.ended:
		return nil
	default:
	}
	err := s.clear(dialhome.Clear{All: true})
	if noDesktop(err) {
		return nil // nothing can read what is typed
	}
	return err
}

// endLeftovers ends what commands without force have left, such as a program that went
// into the background (X20).
func (s *supervisor) endLeftovers() {
	err := s.clear(dialhome.Clear{})
	if err != nil && !noDesktop(err) && !errors.Is(err, errNoSession) {
		s.log.Error("what commands left runs on under a person", "error", screen.Distrust(err.Error()).String())
	}
}

func (s *supervisor) clear(what dialhome.Clear) error {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	_, err := s.link.call(ctx, question{op: dialhome.OpClear, body: what, urgent: true})
	return err
}

func noDesktop(err error) bool {
	var refusal *dialhome.Error
	return errors.As(err, &refusal) && refusal.Kind == dialhome.KindState
}
