// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// noteTimeout bounds how long the windows of a change of hands are waited for.
const noteTimeout = 3 * time.Second

// handoff is the note on the last hold: which programs had windows, and which site the
// browser showed, when a person came and when they left (rule L13). Titles and the rest of
// addresses stay with the person (X25).
type handoff struct {
	mu   sync.Mutex // guards all below
	last *holdNote
}

type holdNote struct {
	taken  lease.Epoch
	since  time.Time
	back   lease.Epoch // 0: the person still has it
	before chan shown
	note   control.HandOff
	done   chan struct{} // closed once note is good
}

// noteLease begins a note when a person comes and ends it when the agent has the screen
// again. It does not block.
func (s *supervisor) noteLease(n lease.Notice, now time.Time) {
	s.handoff.mu.Lock()
	defer s.handoff.mu.Unlock()
	h := s.handoff.last
	switch {
	case n.Kind == lease.Taken && !n.From.Held():
		h = &holdNote{taken: n.To.Epoch, since: now, before: make(chan shown, 1), done: make(chan struct{})}
		s.handoff.last = h
		go func() { h.before <- s.shown() }()
	case n.Kind == lease.HandedBack && h != nil && h.back == 0:
		h.back = n.To.Epoch
		go func() {
			defer close(h.done)
			before, after := <-h.before, s.shown()
			h.note = control.HandOff{Held: now.Sub(h.since), Before: before.programs, After: after.programs,
				OriginBefore: before.origin, OriginAfter: after.origin}
		}()
	}
}

// shown is what an agent may hear of a screen in a person's hands.
type shown struct {
	programs []string
	origin   screen.Untrusted // of the browser's page
}

func (s *supervisor) shown() shown {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	origin := make(chan screen.Untrusted, 1)
	go func() { origin <- screen.Distrust(s.pageInFront(ctx).Origin) }()
	return shown{programs: s.programs(), origin: <-origin}
}

// programs are the classes of the ordinary windows, each once and sorted; nil where the
// desktop does not say.
func (s *supervisor) programs() []string {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	list, err := s.listWindows(ctx)
	if err != nil {
		return nil
	}
	return programsOf(list)
}

func programsOf(list []dialhome.Window) []string {
	var names []string
	for _, w := range list {
		if name := screen.Distrust(w.Class).String(); name != "" && (w.Type == "normal" || w.Type == "dialog") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// noteOf is the note on the hold that ended with this epoch, nil where there is none. It
// waits for the windows, which come a moment later than the lease.
func (s *supervisor) noteOf(ctx context.Context, back lease.Epoch) *control.HandOff {
	s.handoff.mu.Lock()
	h := s.handoff.last
	s.handoff.mu.Unlock()
	if h == nil || h.back != back {
		return nil
	}
	timer := time.NewTimer(2 * noteTimeout)
	defer timer.Stop()
	select {
	case <-h.done:
		note := h.note
		return &note
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}
