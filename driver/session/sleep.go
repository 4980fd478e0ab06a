// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"fmt"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// handleSleep ends the desktop and everything else below the session, which itself stays
// and keeps the plan: the next start brings the same screen up again (rule I4).
func (s *session) handleSleep(l *link, packet dialhome.Packet) {
	var request dialhome.Sleep
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		l.reply(packet.ID, nil, asError(err))
		return
	}
	if err := s.sleep(request); err != nil {
		l.reply(packet.ID, nil, asError(err))
		return
	}
	l.reply(packet.ID, nil, nil)
	s.mu.Lock()
	body := s.describe()
	s.mu.Unlock()
	s.emit(dialhome.EventHello, body) // the supervisor that asked may be gone
}

func (s *session) sleep(request dialhome.Sleep) error {
	s.mu.Lock()
	d, state := s.desktop, s.state
	if state == dialhome.Running {
		s.state = dialhome.Dozing
	}
	s.mu.Unlock()
	switch state {
	case dialhome.Running:
	case dialhome.Idle:
		return nil
	default:
		return &dialhome.Error{Kind: dialhome.KindState, Message: fmt.Sprintf("cannot sleep: the desktop is %s", state)}
	}
	limit, cancel := context.WithTimeout(context.Background(), max(request.Grace, 0)+killSlack)
	defer cancel()
	err := d.Stop(limit, s.endBrowser(request.Grace))
	if err != nil {
		// Beside what is left no other desktop could start.
		s.fail(fmt.Sprintf("the desktop did not end to sleep: %v", err))
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == dialhome.Dozing { // else the session is ending
		s.state, s.desktop, s.fence = dialhome.Idle, nil, nil
	}
	return nil
}
