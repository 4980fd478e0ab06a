// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

// handBackTimeout bounds how long a hand-back waits for the browser to say what it shows. It
// is longer than a page is asked by the session.
const handBackTimeout = 3 * time.Second

// pageInFront is what people see of the browser; nothing where none runs or it cannot say,
// and Unsure where it does not say in time.
func (s *supervisor) pageInFront(ctx context.Context) (page dialhome.BrowserPage) {
	s.mu.Lock()
	b := s.browserShown()
	s.mu.Unlock()
	if b == nil || !b.Running {
		return page
	}
	if s.askDesk(ctx, question{op: dialhome.OpBrowserPage, body: struct{}{}}, &page) != nil {
		return dialhome.BrowserPage{Unsure: ctx.Err() != nil}
	}
	return page
}

// mayHandBack asks a person once before the agent gets a screen on which a password field
// is filled, or where that cannot be told: it could read what stands there (X18). Whoever
// hands back again means it.
func (s *supervisor) mayHandBack(viewer lease.ViewerID) error {
	held := s.holds()
	if !held.HeldBy(viewer) || s.warnedOf(held.Epoch) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), handBackTimeout)
	defer cancel()
	why := "a password field on its page is filled"
	switch page := s.pageInFront(ctx); {
	case page.Filled:
	case page.Unsure:
		why = "the browser does not say in time whether a password field on its page is filled"
	default:
		return nil
	}
	s.mu.Lock()
	s.warned = held.Epoch
	s.mu.Unlock()
	return &control.Error{Kind: control.PasswordFilled, Holder: held.Holder, Since: held.Since, Epoch: held.Epoch,
		Message: "You still have the screen: " + why + ", and the agent could read what stands there.",
		Next:    "Empty the field or go on to another page; or hand back again, and it is handed back as it is."}
}

// renewPage gives the person in control a page without what the agent left in it.
func (s *supervisor) renewPage(ctx context.Context, fresh bool) error {
	return s.askDesk(ctx, question{op: dialhome.OpBrowserRenew, body: dialhome.BrowserRenew{Fresh: fresh}, urgent: true}, nil)
}

func (s *supervisor) warnedOf(hold lease.Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warned == hold
}
