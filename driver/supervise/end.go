// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// stopSlack is what a session may take beyond the grace of a stop.
const stopSlack = 20 * time.Second

// beginStop reports whether the session is to be asked to stop: once, and again after
// it could not be asked.
func (s *supervisor) beginStop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking || s.record.Exit != nil {
		return false
	}
	s.stopping, s.asking = true, true
	return true
}

// stopSession asks the session to end the desktop and itself, after beginStop. Where it
// does not, the plugin kills it from outside.
func (s *supervisor) stopSession(first int, grace time.Duration) {
	s.enter(screen.Stopping, control.EventState, "")
	s.thawToEnd()
	ctx, cancel := context.WithTimeout(context.Background(), grace+stopSlack)
	defer cancel()
	body := dialhome.Stop{Signal: first, Grace: grace}
	if _, err := s.link.call(ctx, question{op: dialhome.OpStop, body: body, urgent: true}); err != nil {
		s.log.Warn("the session did not answer the stop", "error", err)
		s.mu.Lock()
		s.asking = false
		s.mu.Unlock()
	}
}

// end computes how the screen ended, once, and keeps it for whoever asks, also for the
// next supervisor.
func (s *supervisor) end() {
	s.mu.Lock()
	if s.record.Exit == nil {
		exit := s.exit()
		s.record.Exit = &exit
	}
	exit := *s.record.Exit
	s.mu.Unlock()
	s.save()
	state := screen.Failed
	if exit.Code == 0 {
		state = screen.Stopped
	}
	s.enter(state, control.EventState, exit.Reason.String())
	close(s.ended)
	s.relay.Close() // after it: a viewer that does not answer holds up nobody who waits
}

// exit needs s.mu.
func (s *supervisor) exit() control.Exit {
	switch {
	case s.failure != nil:
		return control.Exit{Code: 1, Cause: screen.Distrust(string(s.failure.Kind)).String(), Reason: screen.Distrust(s.failure.Message)}
	case s.died != "":
		return control.Exit{Code: 1, Reason: screen.Distrust(s.died)}
	case s.stopping:
		return control.Exit{Code: 0, Reason: screen.Distrust(s.resting)}
	default:
		// Only the parent sees the status; the plugin completes this where it is the parent.
		return control.Exit{Code: 1, Lost: true, Reason: screen.Distrust("the session process was killed from outside or crashed")}
	}
}
