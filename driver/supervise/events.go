// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// onEvent handles what the session reports. Its words are untrusted; a body of another
// form says nothing.
func (s *supervisor) onEvent(p dialhome.Packet) {
	switch p.Event {
	case dialhome.EventHello:
		var d dialhome.Desktop
		if dialhome.Decode(p.Body, &d) == nil {
			s.onHello(d)
		}
	case dialhome.EventFence:
		var f dialhome.Fence
		if dialhome.Decode(p.Body, &f) == nil {
			s.onFence(fenceOf(f))
		}
	case dialhome.EventBrowser:
		var b dialhome.Browser
		if dialhome.Decode(p.Body, &b) == nil {
			s.onBrowser(b)
		}
	case dialhome.EventClipboard:
		s.onCopy()
	case dialhome.EventDied:
		var n dialhome.Note
		if dialhome.Decode(p.Body, &n) == nil && n.Text != "" {
			s.mu.Lock()
			s.died = n.Text
			s.mu.Unlock()
		}
	case dialhome.EventRestarted, dialhome.EventGaveUp:
		var n dialhome.Note
		if dialhome.Decode(p.Body, &n) == nil && s.notes.take(time.Now()) {
			s.note(control.EventRestarted, n.Program+": "+n.Text)
		}
	}
}

func fenceOf(f dialhome.Fence) control.Fence {
	if f.Enforced {
		return control.Fence{Mode: control.Enforced}
	}
	return control.Fence{Mode: control.Advisory, Reason: screen.Distrust(f.Reason).String()}
}

// enter changes the state and says so. Nothing follows the end.
func (s *supervisor) enter(state screen.State, name control.EventName, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == screen.Failed || s.state == screen.Stopped {
		return
	}
	s.state, s.since, s.reason = state, time.Now().UTC(), screen.Distrust(reason)
	s.journal.add(s.event(name))
}

// note publishes an event that changes no state.
func (s *supervisor) note(name control.EventName, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(name)
	e.Reason = screen.Distrust(reason)
	s.journal.add(e)
}

// onFence keeps the result of the self-test. It is news where the screen was called
// ready before, which is the usual order.
func (s *supervisor) onFence(f control.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.fence != f
	s.fence = f
	if news && s.state == screen.Ready && s.notes.take(time.Now()) {
		e := s.event(control.EventFence)
		e.Reason = screen.Distrust(f.Reason)
		s.journal.add(e)
		go s.giveBack() // it is the last thing of a start
	}
}

// event needs s.mu.
func (s *supervisor) event(name control.EventName) control.Event {
	held, _ := s.keeper.Lease()
	return control.Event{
		Name: name, State: s.state, Profile: s.config.Profile, Isolation: s.config.Isolation,
		ImageDigest: s.config.ImageDigest, Holder: held.Holder, Epoch: held.Epoch, Fence: s.fence.Mode, Reason: s.reason,
	}
}
