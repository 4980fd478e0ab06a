// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// clearLimit bounds a clearing; a supervisor waits a little longer.
const clearLimit = 4 * time.Second

// handleClear ends what a person who takes the screen must not have beside them.
func (s *session) handleClear(l *link, packet dialhome.Packet) {
	var request dialhome.Clear
	err := dialhome.Decode(packet.Body, &request)
	if err == nil {
		err = s.clear(request)
	}
	l.answer(packet.ID, nil, err)
}

func (s *session) clear(request dialhome.Clear) error {
	d := s.running()
	if d == nil {
		return errNoDesktop
	}
	ctx, cancel := context.WithTimeout(s.stopping, clearLimit)
	defer cancel()
	clear := d.EndMarked
	if request.All {
		clear = d.Clear
		s.quitBrowser(ctx) // it would be killed, and lose the newest logins (BRW-12)
	}
	return clear(ctx)
}
