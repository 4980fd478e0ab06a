// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/screen"
)

// wakeAttempts bounds how many display numbers a wake tries: somebody may have taken ours
// meanwhile.
const wakeAttempts = 8

// waking is one start of a desktop that slept. Whoever uses the screen meanwhile waits for
// the same one.
type waking struct {
	done chan struct{}
	err  error // good once done is closed
}

// wake starts the desktop again, or waits for the start that goes on (rule I3).
func (s *supervisor) wake(ctx context.Context) error {
	s.mu.Lock()
	w := s.waking
	if w == nil {
		w = &waking{done: make(chan struct{})}
		s.waking = w
		go s.runWake(w)
	}
	s.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runWake goes on when whoever asked has left.
func (s *supervisor) runWake(w *waking) {
	s.turn <- struct{}{} // the desktop may still be on its way to sleep
	w.err = s.startAgain()
	<-s.turn
	s.mu.Lock()
	s.waking = nil
	s.mu.Unlock()
	close(w.done)
}

func (s *supervisor) startAgain() error {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	switch state {
	case screen.Frozen:
		return s.thaw()
	case screen.Asleep:
	default:
		return nil // whoever asked looks again
	}
	// The start gate is the plugin's; the floor holds here too (rule M1).
	if _, err := memory.CheckFloor(s.config.MinFreeMemoryMB, memory.Prober{}.Read(context.Background()), 0); err != nil {
		reason := err.Error()
		var floor *memory.FloorError
		if errors.As(err, &floor) {
			reason = floor.Sentence()
		}
		s.note(control.EventBlocked, reason)
		return &control.Error{Kind: control.StartFailed, Message: "Cannot wake the desktop: " + reason,
			Next: "Free memory on the node and try again; the screen sleeps on."}
	}
	began := time.Now()
	s.enter(screen.Waking, control.EventState, "")
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Deadline+adoptLimit)
	defer cancel()
	desktop, err := s.askWake(ctx)
	if err == nil {
		s.touch() // a start is a use
		err = s.show(ctx, desktop)
	}
	if err != nil {
		s.enter(screen.Asleep, control.EventState, "the last wake failed: "+err.Error())
		return wakeRefusal(err)
	}
	s.countWake(time.Since(began))
	s.enter(screen.Ready, control.EventWoken, fmt.Sprintf("after %.1f s", time.Since(began).Seconds()))
	return nil
}

// askWake tries the number the screen had, and then others: a viewer finds the screen by
// its profile, so any will do.
func (s *supervisor) askWake(ctx context.Context) (dialhome.Desktop, error) {
	s.mu.Lock()
	number := s.record.Display
	s.mu.Unlock()
	for attempt := 1; ; attempt++ {
		desktop, err := s.startDesktop(ctx, question{body: dialhome.Start{Display: number}, urgent: true})
		var refusal *dialhome.Error
		switch {
		case err == nil || attempt == wakeAttempts || !errors.As(err, &refusal):
			return desktop, err
		case refusal.Kind == dialhome.KindDisplayTaken:
			number = s.nextDisplay(number)
			continue
		case refusal.Kind == dialhome.KindState && attempt == 1:
			// It never heard that it should sleep.
			if _, err := s.link.call(ctx, question{op: dialhome.OpSleep, body: dialhome.Sleep{Grace: defaultGrace}, urgent: true}); err != nil {
				return dialhome.Desktop{}, err
			}
			continue
		default:
			return dialhome.Desktop{}, err
		}
	}
}

// nextDisplay is another number of the node's band. A sandbox with a network of its own
// has no band, and no neighbours.
func (s *supervisor) nextDisplay(number int) int {
	if s.config.Isolation == screen.Docker || s.config.LastDisplay <= s.config.FirstDisplay {
		return number
	}
	number++
	if number > s.config.LastDisplay || number < s.config.FirstDisplay {
		number = s.config.FirstDisplay
	}
	return number
}

func wakeRefusal(err error) error {
	var refusal *control.Error
	if errors.As(refusalOf("wake the desktop", err), &refusal) {
		refusal.Kind = control.StartFailed
		if refusal.Next == "" {
			refusal.Next = "Look at the task's log; the screen sleeps on and may be tried again."
		}
		return refusal
	}
	return fmt.Errorf("wake the desktop: %w", err)
}

// Sleep puts the desktop to sleep now, unless somebody uses it.
func (s *supervisor) Sleep(_ context.Context, _ controlserver.Caller) error {
	err := s.repose(0, "an operator put it to sleep")
	if errors.Is(err, errBusy) {
		s.mu.Lock()
		state := s.state
		s.mu.Unlock()
		if state == screen.Asleep || state == screen.Frozen {
			return nil
		}
		return &control.Error{Kind: control.Busy, Message: fmt.Sprintf("Cannot put the desktop to sleep: it is %s and in use.", state),
			Next: "See who views it with `botscreen status`, or stop the screen."}
	}
	if err != nil {
		return refusalOf("put the desktop to sleep", err)
	}
	return nil
}

// Wake starts the desktop if it sleeps, and returns when it is ready.
func (s *supervisor) Wake(ctx context.Context, _ controlserver.Caller) error {
	end, err := s.begin(ctx, "wake the desktop")
	if err != nil {
		return err
	}
	end()
	return nil
}

// wakeFor starts a desktop that sleeps for the person who has just taken it.
func (s *supervisor) wakeFor() {
	s.mu.Lock()
	asleep := s.state == screen.Asleep
	s.mu.Unlock()
	if asleep {
		go func() {
			if err := s.wake(context.Background()); err != nil {
				s.log.Warn("the desktop does not wake for the person who took it", "error", err)
			}
		}()
	}
}
