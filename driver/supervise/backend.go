// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	defaultGrace = 5 * time.Second
	maxGrace     = 10 * time.Minute
	maxSignal    = 64 // the highest on Linux, see signal(7)
)

// Status says everything there is to say now; it changes and wakes nothing.
func (s *supervisor) Status(context.Context, controlserver.Caller) (control.Status, error) {
	held, _ := s.keeper.Lease()
	warnings := slices.Clone(s.config.Warnings)
	if trouble := s.keeper.Trouble(); trouble != nil {
		warnings = append(warnings, "The lease could not be written ("+trouble.Error()+"). It holds until this supervisor ends; after that the one on disk does.")
	}
	if s.viewer.trouble != nil {
		warnings = append(warnings, "There is no viewer listener: "+s.viewer.trouble.Error()+".")
	}
	viewers := s.viewers()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.auditTrouble != nil {
		warnings = append(warnings, "Who has the screen is not written down: "+s.auditTrouble.Error()+". The audit file counts the lines that are missing.")
	}
	if s.doorLost {
		warnings = append(warnings, "The agent's socket in the alloc directory was replaced by another task: what connects there does not reach this screen.")
	}
	status := control.Status{
		WireVersion: control.Version,
		State:       s.state, Since: s.since, Reason: s.reason,
		Profile: s.config.Profile, Isolation: s.config.Isolation, Geometry: s.config.Geometry,
		ImageDigest: s.config.ImageDigest, Fence: s.fence, Warnings: warnings, Lease: held.Public(), Asks: s.asks.open(time.Now()),
		Browser: s.browserShown(), Viewers: viewers, Notice: control.TakeoverNotice,
	}
	if s.config.Takeover.Takeover == screen.TakeoverClean {
		status.Notice = control.CleanNotice
	}
	if s.record.Ready && s.record.Exit == nil {
		status.Display = fmt.Sprintf(":%d", s.record.Display)
	}
	return status, nil
}

// EventsAfter follows the journal.
func (s *supervisor) EventsAfter(ctx context.Context, since uint64) ([]control.Event, error) {
	for {
		events, changed := s.journal.after(since)
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Stop ends the desktop and the session. It returns when the session is gone; what may
// be left of the screen outside of it is the plugin's to remove.
func (s *supervisor) Stop(ctx context.Context, caller controlserver.Caller, req control.StopRequest) error {
	grace := min(req.Grace, maxGrace)
	switch {
	case grace == 0:
		grace = defaultGrace
	case grace < 0:
		grace = 0
	}
	if req.Signal < 0 || req.Signal > maxSignal {
		return noSuchSignal(req.Signal)
	}
	if err := s.mayStop(req.Force); err != nil {
		return err
	}
	if s.beginStop() {
		s.auditAct(audit.Stopped, cameBy(caller), s.holds().Viewer.Handle(), "")
		go s.stopSession(req.Signal, grace) // goes on when the caller leaves
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns how the screen ended.
func (s *supervisor) Wait(ctx context.Context) (control.Exit, error) {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return control.Exit{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.record.Exit, nil
}

// Signal reaches every program on the desktop but the X server.
func (s *supervisor) Signal(ctx context.Context, _ controlserver.Caller, req control.SignalRequest) error {
	if req.Signal < 1 || req.Signal > maxSignal {
		return noSuchSignal(req.Signal)
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer s.holdAwake(bounded)()
	_, err := s.link.call(bounded, question{op: dialhome.OpSignal, body: dialhome.Signal{Signal: req.Signal}})
	if err != nil {
		return refusalOf("send the signal", err)
	}
	return nil
}

func noSuchSignal(number int) error {
	return &control.Error{Kind: control.BadRequest, Message: fmt.Sprintf("There is no signal %d.", number), Next: "See signal(7)."}
}
