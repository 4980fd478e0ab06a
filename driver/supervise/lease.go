// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// openLease takes up the lease in the control directory. It is a new one, the agent's,
// only where neither a screen record nor driver state of this profile exists (X26).
func (s *supervisor) openLease(recorded bool) error {
	store := lease.NewStore(s.dir, lease.Origin{
		Fresh: !recorded && !s.config.Known,
		Floor: max(plausible(s.record.Epoch), plausible(lease.Epoch(s.config.LeaseFloor))),
	})
	policy := lease.DefaultPolicy()
	policy.AwayLimit, policy.Consent = s.config.Takeover.AwayLimit, s.config.Takeover.Consent
	keeper, err := lease.OpenKeeper(store, lease.Options{
		Policy: policy, Prepare: s.prepare, Handover: s.handOver, Notify: s.onLease,
	})
	if err != nil {
		return fmt.Errorf("supervise screen: %w", err)
	}
	s.keeper = keeper
	held, _ := keeper.Lease()
	s.record.Epoch = held.Epoch
	return nil
}

// plausible drops an epoch that cannot have been: it would leave none that is higher.
func plausible(e lease.Epoch) lease.Epoch {
	if e >= lease.MaxEpoch {
		return 0
	}
	return e
}

// handOver runs at a change of hands, while neither side is admitted.
func (s *supervisor) handOver(from, to lease.Lease) {
	detached := func() {}
	if to.Held() {
		s.cutCommands()
		detached = s.cutBrowsing()
		go s.endLeftovers()
	}
	wiped := s.wipeClipboard()
	s.relay.Handover(from, to) // what the old holder still presses is let go
	wiped()
	detached()
}

// noticeEvents names what people see of a lease. Asked and denied concern two viewers
// alone.
var noticeEvents = map[lease.NoticeKind]control.EventName{
	lease.Taken:      control.EventTaken,
	lease.HandedBack: control.EventHandedBack,
	lease.HumanAway:  control.EventHumanAway,
}

// onLease publishes what happened to the lease. The epoch is kept in the screen's
// record too, so that a lease that is lost, or restored from a copy, is noticed.
func (s *supervisor) onLease(n lease.Notice) {
	s.relay.Notice(n)
	s.auditLease(n)
	name, ok := noticeEvents[n.Kind]
	if !ok {
		return
	}
	s.mu.Lock()
	news := n.To.Epoch > s.record.Epoch
	s.record.Epoch = max(s.record.Epoch, n.To.Epoch)
	e := s.event(name)
	e.Holder, e.Epoch, e.Reason = n.To.Holder, n.To.Epoch, n.To.Reason
	s.journal.add(e)
	s.mu.Unlock()
	switch n.Kind {
	case lease.Taken:
		s.count(func(c *control.Counts) { c.Takeovers++ })
	case lease.HandedBack:
		s.count(func(c *control.Counts) { c.HandBacks++ })
	}
	now := time.Now()
	s.noteLease(n, now)
	s.asks.leaseChanged(n, now)
	s.showAsks()
	s.saveAsks()
	if n.Kind == lease.Taken {
		s.wakeFor()
	}
	if news {
		s.save()
	}
}

// Lease says who holds the screen.
func (s *supervisor) Lease(context.Context) (lease.Public, error) {
	held, _ := s.keeper.Lease()
	return held.Public(), nil
}

// Take gives the screen to a viewer. It may have lost it again when this returns.
func (s *supervisor) Take(ctx context.Context, caller controlserver.Caller, req control.TakeRequest) (lease.Public, error) {
	defer s.holdAwake(ctx)() // what a change of hands asks of the desktop a frozen one does not hear
	s.trail.came(req.Viewer.Handle(), cameBy(caller))
	held, err := s.keeper.Take(req.Viewer, req.Reason, false)
	if err != nil {
		return lease.Public{}, leaseRefusal("take control", err)
	}
	return held.Public(), nil
}

// Release hands the screen back. A viewer that does not hold it changes nothing, and
// hears so where another one does (rule L4).
func (s *supervisor) Release(_ context.Context, caller controlserver.Caller, req control.ReleaseRequest) (lease.Public, error) {
	if !req.Force {
		if err := s.mayHandBack(req.Viewer); err != nil {
			return lease.Public{}, err
		}
	}
	before, _ := s.keeper.Lease()
	var held lease.Lease
	var err error
	if req.Force {
		s.trail.free(cameBy(caller), func() { held, err = s.keeper.Free() })
	} else {
		s.trail.came(req.Viewer.Handle(), cameBy(caller))
		held, err = s.keeper.Release(req.Viewer)
	}
	switch {
	case err != nil:
		return lease.Public{}, leaseRefusal("hand the screen back", err)
	case held.Held() && !req.Force && !before.HeldBy(req.Viewer):
		return lease.Public{}, &control.Error{Kind: control.NotHolder, Holder: held.Holder, Since: held.Since, Epoch: held.Epoch,
			Message: "Cannot hand the screen back: it is controlled by somebody else.",
			Next:    "Ask them, or free it with `botscreen release --force`."}
	}
	return held.Public(), nil
}

// leaseRefusal says why a lease did not change. In doubt a human holds, so a hand-back
// that cannot be written does not happen.
func leaseRefusal(what string, err error) error {
	if refusal := control.FromLease(err); refusal != nil {
		return refusal
	}
	var unready *lease.PrepareError
	if errors.As(err, &unready) {
		return &control.Error{Kind: control.Refused,
			Message: fmt.Sprintf("Cannot %s: this job wants the desktop cleared first (takeover = \"clean\"), and that could not be done: %s.", what, screen.Distrust(unready.Err.Error())),
			Next:    "Try again in a moment; if it stays, stop the screen with `botscreen stop` and start it anew."}
	}
	var disk *lease.StoreError
	if errors.As(err, &disk) || errors.Is(err, lease.ErrExhausted) {
		return &control.Error{Kind: control.Internal,
			Message: fmt.Sprintf("Cannot %s, the lease cannot be written: %s.", what, err),
			Next:    "Repair the disk under state_dir on the screen's node and try again."}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// beginFenced is the first half of what a lease fences: it is refused while a person
// holds, and the epoch is what admit has to be asked with afterwards (rule L6).
func (s *supervisor) beginFenced() (lease.Epoch, error) {
	held, _ := s.keeper.Lease()
	return held.Epoch, s.admit(held.Epoch)
}

// admit reports why what began at this epoch may not have its result.
func (s *supervisor) admit(seen lease.Epoch) error {
	err := s.keeper.Admit(seen)
	if refusal := control.FromLease(err); refusal != nil {
		return refusal
	}
	return err
}

// mayStop refuses a stop under a person without force (rule L11). A screen that has
// ended is stopped for anybody.
func (s *supervisor) mayStop(force bool) error {
	select {
	case <-s.ended:
		return nil
	default:
	}
	err := s.keeper.MayStop(force)
	if refusal := control.FromHeldStop(err); refusal != nil {
		return refusal
	}
	return err
}

// fenceCommand makes a takeover end a command, also one that came while it started: it
// is among those to end before it is asked whether one came.
func (s *supervisor) fenceCommand(c *command, seen lease.Epoch) error {
	s.mu.Lock()
	s.commands[c] = struct{}{}
	s.mu.Unlock()
	c.forget = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.commands, c)
	}
	if err := s.admit(seen); err != nil {
		c.cutOff()
		c.forget()
		return err
	}
	return nil
}

// cutCommands ends the commands that run without force (X20).
func (s *supervisor) cutCommands() {
	s.mu.Lock()
	running := slices.Collect(maps.Keys(s.commands))
	s.mu.Unlock()
	for _, c := range running {
		c.cutOff()
	}
}

// cutOff ends the command's stream, so that what it still prints goes nowhere, and its
// process group. It does not wait for a session that is slow to take the kill.
func (c *command) cutOff() {
	c.cutOnce.Do(func() {
		close(c.cut)
		_ = c.stdin.Close()
		_ = c.stdout.Close()
		if c.stderr != nil {
			_ = c.stderr.Close()
		}
		go c.Kill()
	})
}
