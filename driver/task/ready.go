// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// readySlack is what the processes around the desktop may take beyond its deadline.
	readySlack = 10 * time.Second
	// killLimit bounds how long SIGKILL may take to work.
	killLimit = 10 * time.Second
	// reapLimit is how long init may take to reap a killed X server.
	reapLimit = 5 * time.Second
	// exitLimit bounds the question how a screen ended.
	exitLimit = 3 * time.Second
)

// awaitReady follows the supervisor's events until the screen is ready or has failed.
func (s *start) awaitReady(ctx context.Context) error {
	deadline := s.request.Spec.Deadline(s.record.Isolation)
	ctx, cancel := context.WithTimeoutCause(ctx, deadline+readySlack, fmt.Errorf("not ready within %s", deadline))
	defer cancel()
	client := control.NewClient(control.Unix(s.places.op))
	defer client.Close()
	for event, err := range client.Events(ctx, 0) {
		if err != nil {
			return s.explainLoss(ctx, err)
		}
		s.lastSeq = event.Seq
		s.m.noteEpoch(s.request.screenID(), uint64(event.Epoch))
		switch event.State {
		case screen.Ready:
			s.m.publish(&s.record, s.readyMessage(), event)
			return nil
		case screen.Failed, screen.Stopped:
			return s.explainFailure(ctx, client, event)
		}
	}
	return s.explainLoss(ctx, errors.New("the supervisor ended its events"))
}

func (s *start) readyMessage() string {
	return fmt.Sprintf("Desktop ready on :%d after %.1f s", s.record.Display, time.Since(s.record.Started).Seconds())
}

func (s *start) explainFailure(ctx context.Context, client *control.Client, event control.Event) error {
	ctx, cancel := context.WithTimeout(ctx, exitLimit)
	defer cancel()
	exit, err := client.Wait(ctx)
	if err != nil {
		return &StartError{Reason: event.Reason.String()}
	}
	reason := exit.Reason.String()
	if status, ok := s.sandbox.Status(); ok && exit.Lost {
		reason = describeStatus(status)
	}
	return &StartError{Cause: exit.Cause, Reason: reason}
}

func (s *start) explainLoss(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &StartError{Reason: "the screen was " + context.Cause(ctx).Error()}
	}
	if !s.sup.identity.Alive() {
		return &StartError{Reason: "the supervisor died during the start; its log is " + s.places.control + "/supervise.log"}
	}
	return &StartError{Reason: "the supervisor does not answer: " + err.Error()}
}

// describeStatus says how a session process ended that said nothing itself.
func describeStatus(status isolation.Status) string {
	if status.Signal != 0 {
		return fmt.Sprintf("the session process was ended by signal %d from outside", status.Signal)
	}
	return fmt.Sprintf("the session process ended by itself with status %d", status.Code)
}

// endSandbox kills what is left behind a boundary and takes its traces away.
func endSandbox(sandbox isolation.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	thaw(ctx, sandbox)
	return errors.Join(sandbox.Kill(ctx), sandbox.Remove(ctx))
}

// tidyDisplay removes what a killed X server leaves in /tmp.
func (m *Manager) tidyDisplay(number int) error {
	ctx, cancel := context.WithTimeout(context.Background(), reapLimit)
	defer cancel()
	return m.claims.Tidy(ctx, display.Number(number))
}

// publish makes a task event of what happened.
func (m *Manager) publish(r *runRecord, message string, e control.Event) {
	m.events.publish(Event{
		TaskID: r.TaskID, AllocID: r.AllocID, TaskName: r.TaskName, Time: time.Now().UTC(),
		Message: strings.TrimSpace(message), Annotations: annotate(r, e),
	})
}
