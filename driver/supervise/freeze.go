// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// freezeLimit bounds the freezer, which one process in an uninterruptible sleep holds up.
	freezeLimit = 5 * time.Second
	// worthSwapping is how much swap must be free, in bytes: without any there is nothing
	// that the kernel would not take by itself, and what it took would be missed at the thaw.
	worthSwapping = 256 << 20
)

// inheritedBrake is the brake of the screen's cgroup; nil: there is none.
func inheritedBrake(config Config) *cgroup.Brake {
	if config.Brake == nil {
		return nil
	}
	return cgroup.InheritBrake(*config.Brake, FDBrake)
}

// freeze stops the desktop where it stands, if nobody has used it for so long: its windows
// stay, it takes no processor time, and its memory goes to swap where there is some.
func (s *supervisor) freeze(after time.Duration, reason string) error {
	done, err := s.beginRest(screen.Frozen, after, reason, func() { s.record.Frozen = true })
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	if err := s.brake.Freeze(ctx); err != nil {
		return errors.Join(fmt.Errorf("freeze the desktop: %w", err), s.thaw())
	}
	s.note(control.EventFrozen, reason)
	go s.giveBack() // what its pictures and viewers needed
	if swapFree() >= worthSwapping {
		go s.brake.Reclaim() // ends by itself, and a thaw does not wait for it
	}
	return nil
}

func swapFree() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Freeswap) * uint64(info.Unit)
}

// thaw lets a frozen desktop go on. It runs in turn.
func (s *supervisor) thaw() error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	if err := s.brake.Thaw(ctx); err != nil {
		return &control.Error{Kind: control.StartFailed, Message: fmt.Sprintf("Cannot thaw the desktop: %s.", err),
			Next: "Look at the control group of the screen on its node, or stop it with `botscreen stop`."}
	}
	s.mu.Lock()
	s.record.Frozen = false
	s.use.last = time.Now()
	s.mu.Unlock()
	s.countWake(time.Since(began))
	s.enter(screen.Ready, control.EventWoken, fmt.Sprintf("after %.3f s; it was frozen", time.Since(began).Seconds()))
	go s.save() // a supervisor that dies before this thaws it once more
	return nil
}

// holdAwake keeps the desktop from being put to sleep until end, and thaws one that is
// frozen; one that sleeps sleeps on.
func (s *supervisor) holdAwake(ctx context.Context) (end func()) {
	s.mu.Lock()
	s.use.current++
	frozen := s.state == screen.Frozen
	s.mu.Unlock()
	if frozen {
		if err := s.wake(ctx); err != nil {
			s.log.Warn("the desktop is not thawed", "error", err)
		}
	}
	return s.endUse
}

// thawToEnd lets a desktop go on so that it can end: a frozen program gets no signal.
func (s *supervisor) thawToEnd() {
	if s.brake == nil {
		return
	}
	s.mu.Lock()
	frozen := s.record.Frozen
	s.mu.Unlock()
	if !frozen {
		return
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	if err := s.brake.Thaw(ctx); err != nil {
		s.log.Error("the desktop is not thawed for its stop", "error", err)
	}
}

// thawToAdopt lets a session go on that a supervisor before this one may have frozen: it
// could not show what it has. It reports whether the desktop was left frozen.
func (s *supervisor) thawToAdopt() bool {
	if s.brake == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	if err := s.brake.Thaw(ctx); err != nil {
		s.log.Error("the desktop is not thawed for the new supervisor", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.record.Frozen
	s.record.Frozen = false
	return was
}

// freezeAgain leaves an adopted desktop as it was, unless somebody uses it by now.
func (s *supervisor) freezeAgain() {
	if err := s.freeze(0, "it was before its supervisor was replaced"); err != nil && !errors.Is(err, errBusy) {
		s.log.Warn("the adopted desktop is not frozen again", "error", err)
	}
}
