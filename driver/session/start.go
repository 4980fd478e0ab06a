// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// maxPlan bounds the plan, in bytes: a job's environment may be long.
const maxPlan = 16 << 20

// pendingStart is a start that runs.
type pendingStart struct {
	ctx    context.Context // ends when the start is called off
	cancel context.CancelFunc
	over   chan struct{} // closed when it has succeeded or cleaned up after itself
}

// handleStart brings the desktop up and answers when it is painted or has failed. It
// goes on when the supervisor that asked is gone: the next one adopts what comes of it.
func (s *session) handleStart(l *link, packet dialhome.Packet, passed []*dialhome.Descriptor) {
	defer dialhome.CloseAll(passed)
	start, err := s.beginStart()
	if err != nil {
		l.reply(packet.ID, nil, asError(err)) // refused: what runs is not touched
		return
	}
	wake := s.hasPlan()
	err = s.runStart(start, packet, passed)
	s.mu.Lock()
	s.start = nil
	body := s.describe()
	s.mu.Unlock()
	start.cancel()
	close(start.over)
	if err != nil {
		failure := asError(err)
		l.reply(packet.ID, nil, failure)
		if !wake { // one that does not wake up sleeps on, and may be asked again
			s.fail(failure.Message) // nobody could use a session whose desktop did not come up
		}
		return
	}
	l.reply(packet.ID, body, nil)
	s.emit(dialhome.EventHello, body) // the supervisor that asked may be gone
}

// hasPlan reports whether a desktop has been started before.
func (s *session) hasPlan() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan != nil
}

// beginStart reserves the session's one desktop.
func (s *session) beginStart() (*pendingStart, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != dialhome.Idle {
		return nil, &dialhome.Error{Kind: dialhome.KindState, Message: fmt.Sprintf("cannot start the desktop: it is %s", s.state)}
	}
	start := &pendingStart{over: make(chan struct{})}
	start.ctx, start.cancel = context.WithCancel(s.stopping)
	s.state, s.start = dialhome.Starting, start
	return start, nil
}

func (s *session) runStart(start *pendingStart, packet dialhome.Packet, passed []*dialhome.Descriptor) error {
	plan, err := s.planOf(packet, passed)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.plan = plan
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(start.ctx, plan.Deadline)
	defer cancel()
	options := s.options(*plan)
	if options.Opener, err = s.serveOpener(plan); err != nil {
		return s.notStarted(err)
	}
	d, err := desktop.Start(ctx, options, s.reaper)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("desktop not ready within %s: %w", plan.Deadline, err)
	}
	if err != nil {
		return s.notStarted(err)
	}
	b := s.newBrowser(d, *plan)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desktop, s.browser = d, b
	if s.state != dialhome.Starting {
		return errors.New("the start was called off") // endDesktop stops it
	}
	s.state = dialhome.Running
	if b != nil {
		go b.Look(s.stopping)
	}
	go s.watchDesktop(d)
	go s.reportFence(d, plan.FenceExemptions)
	return nil
}

// notStarted lets the next start try again, unless the session is ending.
func (s *session) notStarted(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == dialhome.Starting {
		s.state = dialhome.Idle
	}
	return err
}

// planOf is the plan that came with the request, or the one the session has, with the
// display number that the request names.
func (s *session) planOf(packet dialhome.Packet, passed []*dialhome.Descriptor) (*dialhome.Plan, error) {
	var request dialhome.Start
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		return nil, fmt.Errorf("start desktop: %w", err)
	}
	s.mu.Lock()
	plan := s.plan
	s.mu.Unlock()
	if request.HasPlan {
		if len(passed) != 1 {
			return nil, fmt.Errorf("start desktop: %d descriptors came with the plan, want 1", len(passed))
		}
		f := passed[0].File("plan")
		defer f.Close()
		var err error
		if plan, err = readPlan(f); err != nil {
			return nil, fmt.Errorf("start desktop: %w", err)
		}
	}
	if plan == nil {
		return nil, errors.New("start desktop: there is no plan")
	}
	changed := *plan
	changed.Crowded = plan.Crowded && request.HasPlan // a wake is another start
	if request.Display != 0 {
		changed.Display = request.Display
	}
	return &changed, nil
}

func readPlan(f *os.File) (*dialhome.Plan, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxPlan+1))
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if len(text) > maxPlan {
		return nil, fmt.Errorf("read plan: more than %d bytes", maxPlan)
	}
	var plan dialhome.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return nil, errors.New("read plan: not a plan") // the cause would repeat the environment
	}
	return &plan, nil
}

func (s *session) options(plan dialhome.Plan) desktop.Options {
	return desktop.Options{
		Display: plan.Display, WidthPx: plan.WidthPx, HeightPx: plan.HeightPx,
		Depth: plan.Depth, DPI: plan.DPI, GLX: plan.GLX,
		KeyboardLayout: plan.KeyboardLayout, Look: desktop.Look(plan.Look),
		Home: plan.Home, XDir: plan.XDir, RuntimeDir: plan.RuntimeDir,
		Env: plan.Env, Command: plan.Command, ClipboardEvents: plan.ClipboardEvents, Crowded: plan.Crowded, Log: s.log,
		Notify: s.forward,
	}
}

// forward passes the desktop's own events on.
func (s *session) forward(e desktop.Event) {
	switch e.Kind {
	case desktop.EventXServerReady:
		s.emit(dialhome.EventXServer, dialhome.Note{})
	case desktop.EventWMReady:
		s.emit(dialhome.EventWM, dialhome.Note{})
	case desktop.EventPainted:
		s.emit(dialhome.EventPainted, dialhome.Note{})
	case desktop.EventClipboard:
		s.copied.tell()
	case desktop.EventRestarted:
		s.emit(dialhome.EventRestarted, dialhome.Note{Program: e.Program, Text: bounded(e.Detail)})
	case desktop.EventGaveUp:
		s.emit(dialhome.EventGaveUp, dialhome.Note{Program: e.Program, Text: bounded(e.Detail)})
	}
}

// watchDesktop ends the session when the desktop ends by itself.
func (s *session) watchDesktop(d *desktop.Desktop) {
	<-d.Done()
	s.mu.Lock()
	unasked := s.state == dialhome.Running
	if unasked {
		s.state = dialhome.Ended
	}
	s.mu.Unlock()
	if !unasked {
		return
	}
	reason := "the desktop ended"
	if err := d.Err(); err != nil {
		reason = err.Error()
	}
	s.fail(reason)
}

func (s *session) reportFence(d *desktop.Desktop, exemptions []string) {
	result, err := d.Fence(s.stopping)
	fence := dialhome.Fence{Enforced: result.Enforced, Reason: result.Reason}
	if err != nil {
		fence = dialhome.Fence{Reason: "the self-test could not run"}
	}
	if len(exemptions) > 0 {
		reasons := append([]string(nil), exemptions...)
		if fence.Reason != "" {
			reasons = append(reasons, fence.Reason)
		}
		fence = dialhome.Fence{Reason: strings.Join(reasons, "; ")}
	}
	fence.Reason = bounded(fence.Reason)
	s.mu.Lock()
	s.fence = &fence
	s.mu.Unlock()
	s.emit(dialhome.EventFence, fence)
}
