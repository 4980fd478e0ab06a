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
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// maxPlan bounds the plan, in bytes: a job's environment may be long.
const maxPlan = 16 << 20

// handleStart brings the desktop up and answers when it is painted or has failed.
func (s *session) handleStart(ctx context.Context, conn *dialhome.Conn, packet dialhome.Packet, files []*os.File) {
	defer dialhome.CloseAll(files)
	var request dialhome.Start
	err := dialhome.Decode(packet.Body, &request)
	if err == nil && request.HasPlan {
		err = s.acceptPlan(files)
	}
	if err == nil {
		err = s.startDesktop(ctx, request.Display)
	}
	if err != nil {
		failure := asError(err)
		reply(conn, packet.ID, nil, failure)
		var state *dialhome.Error
		if errors.As(err, &state) && state.Kind == dialhome.KindState {
			return // refused: what runs is not touched
		}
		// Nobody could use a session whose desktop did not come up.
		s.emit(dialhome.EventDied, dialhome.Note{Text: failure.Message})
		s.finish(exitFailed, failure.Message)
		return
	}
	s.mu.Lock()
	body := s.describe()
	s.mu.Unlock()
	reply(conn, packet.ID, body, nil)
	// The supervisor that asked may be gone: its successor adopts by this.
	s.emit(dialhome.EventHello, body)
}

func (s *session) acceptPlan(files []*os.File) error {
	if len(files) != 1 {
		return fmt.Errorf("start desktop: %d descriptors came with the plan, want 1", len(files))
	}
	plan, err := readPlan(files[0])
	if err != nil {
		return fmt.Errorf("start desktop: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
	return nil
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

// startDesktop starts the desktop of the plan; display, where not 0, replaces its number.
func (s *session) startDesktop(ctx context.Context, display int) error {
	s.mu.Lock()
	if s.plan == nil || s.state != dialhome.Idle {
		state := s.state
		s.mu.Unlock()
		return &dialhome.Error{Kind: dialhome.KindState, Message: fmt.Sprintf("cannot start the desktop: it is %s", state)}
	}
	if display != 0 {
		s.plan.Display = display
	}
	s.state = dialhome.Starting
	plan := *s.plan
	s.mu.Unlock()

	bounded, cancel := context.WithTimeout(ctx, plan.Deadline)
	defer cancel()
	d, err := desktop.Start(bounded, s.options(plan), s.reaper)
	if err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("desktop not ready within %s: %w", plan.Deadline, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.state = dialhome.Idle
		return err
	}
	s.state, s.desktop = dialhome.Running, d
	go s.watchDesktop(d)
	go s.reportFence(ctx, d, plan.FenceExemptions)
	return nil
}

func (s *session) options(plan dialhome.Plan) desktop.Options {
	return desktop.Options{
		Display: plan.Display, WidthPx: plan.WidthPx, HeightPx: plan.HeightPx,
		Depth: plan.Depth, DPI: plan.DPI, GLX: plan.GLX,
		KeyboardLayout: plan.KeyboardLayout, Look: desktop.Look(plan.Look),
		Home: plan.Home, XDir: plan.XDir, RuntimeDir: plan.RuntimeDir,
		Env: plan.Env, Command: plan.Command, Log: s.log,
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
	case desktop.EventRestarted:
		s.emit(dialhome.EventRestarted, dialhome.Note{Program: e.Program, Text: e.Detail})
	case desktop.EventGaveUp:
		s.emit(dialhome.EventGaveUp, dialhome.Note{Program: e.Program, Text: e.Detail})
	}
}

// watchDesktop ends the session when the desktop ends by itself.
func (s *session) watchDesktop(d *desktop.Desktop) {
	<-d.Done()
	s.mu.Lock()
	unasked := s.desktop == d && s.state == dialhome.Running
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
	s.emit(dialhome.EventDied, dialhome.Note{Text: bounded(reason)})
	s.finish(exitFailed, reason)
}

func (s *session) reportFence(ctx context.Context, d *desktop.Desktop, exemptions []string) {
	result, err := d.Fence(ctx)
	fence := dialhome.Fence{Enforced: result.Enforced, Reason: result.Reason}
	if err != nil {
		fence = dialhome.Fence{Reason: "the self-test could not run"}
	}
	if len(exemptions) > 0 {
		fence = dialhome.Fence{Reason: strings.Join(append(exemptions, nonEmpty(fence.Reason)...), "; ")}
	}
	s.mu.Lock()
	s.fence = &fence
	s.mu.Unlock()
	s.emit(dialhome.EventFence, fence)
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// handleStop ends the desktop and then the session.
func (s *session) handleStop(conn *dialhome.Conn, packet dialhome.Packet) {
	var request dialhome.Stop
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		reply(conn, packet.ID, nil, asError(err))
		return
	}
	s.endDesktop(unix.Signal(request.Signal), request.Grace)
	reply(conn, packet.ID, nil, nil)
	s.finish(exitStopped, "")
}

// endDesktop stops the desktop, if one runs, and everything else below the session.
func (s *session) endDesktop(first unix.Signal, grace time.Duration) {
	s.mu.Lock()
	d := s.desktop
	s.state = dialhome.Ended
	s.mu.Unlock()
	if first != 0 && first != unix.SIGTERM {
		s.commands.signalAll(first)
	}
	if d == nil {
		s.commands.signalAll(unix.SIGKILL)
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), grace+stopGrace)
	defer cancel()
	if err := d.Stop(limit, grace); err != nil {
		fmt.Fprintf(s.log, "session: stop desktop: %v\n", err)
	}
}

// xIdentity is Xvnc's pid and start time in the session's pid namespace.
func xIdentity(d *desktop.Desktop) (pid int, start uint64) {
	id, err := process.Observe(d.XServerPID())
	if err != nil {
		return 0, 0
	}
	return id.PID, id.Start
}

func asError(err error) *dialhome.Error {
	var already *dialhome.Error
	if errors.As(err, &already) {
		return already
	}
	kind := dialhome.KindFailed
	var taken *desktop.DisplayTakenError
	var missing *desktop.MissingError
	switch {
	case errors.As(err, &taken):
		kind = dialhome.KindDisplayTaken
	case errors.As(err, &missing):
		kind = dialhome.KindMissing
	}
	return &dialhome.Error{Kind: kind, Message: bounded(err.Error())}
}

// bounded keeps text from inside well below a packet.
func bounded(text string) string {
	const most = 4096
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func boundedLines(lines []string) []string {
	const most = 20
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	short := make([]string, len(lines))
	for i, line := range lines {
		short[i] = line[:min(len(line), 512)]
	}
	return short
}
