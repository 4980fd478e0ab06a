// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// awaitEvent is the next event of this name after a number.
func (s *supervised) awaitEvent(name control.EventName, after uint64) control.Event {
	s.t.Helper()
	for e, err := range s.client.Events(s.t.Context(), after) {
		must(s.t, err)
		if e.Name == name {
			return e
		}
	}
	s.t.Fatalf("no event %s", name)
	return control.Event{}
}

func (s *supervised) status() control.Status {
	s.t.Helper()
	status, err := s.client.Status(s.t.Context())
	must(s.t, err)
	return status
}

// I1, I3, I4: a desktop that nobody uses sleeps and costs no process; status wakes nothing;
// ten who use it at once get one desktop, on the same display, with the same home. The
// session, and with it the task, runs on, so nothing starts it over and over (NMD-12).
func TestI1SleepAndWake(t *testing.T) {
	s := newSupervisedWith(t, func(c *supervise.Config) {
		c.Idle = screen.IdlePolicy{After: time.Second, Action: screen.IdleSleep}
	})
	before := s.status()
	marker := filepath.Join(s.plan.Home, "marker")
	if got, err := s.run(shell("echo kept > "+marker), strings.NewReader("")); err != nil || got.ExitCode != 0 {
		t.Fatal(got, err)
	}
	asleep := s.awaitEvent(control.EventAsleep, 0)
	if asleep.State != screen.Asleep || !strings.Contains(asleep.Reason.String(), "not used for 1s") {
		t.Errorf("the event is %+v", asleep)
	}
	if left, err := process.Descendants(s.identity.PID); err != nil || len(left) > 0 {
		t.Errorf("asleep it still has the processes %v, %v", left, err)
	}
	if status := s.status(); status.State != screen.Asleep || status.Display != "" {
		t.Errorf("the status is %+v", status)
	}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if _, err := s.client.Screenshot(t.Context(), control.ScreenshotRequest{}); err != nil && !isBusy(err) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	woken := s.awaitEvent(control.EventWoken, asleep.Seq)
	if servers := s.named("Xvnc"); len(servers) != 1 {
		t.Errorf("X servers %v", servers)
	}
	if status := s.status(); status.State != screen.Ready || status.Display != before.Display || status.Lease.Epoch != before.Lease.Epoch {
		t.Errorf("woken the status is %+v, was %+v", status, before)
	}
	if text, err := os.ReadFile(marker); err != nil || string(text) != "kept\n" {
		t.Errorf("the home: %q, %v", text, err)
	}
	again := s.awaitEvent(control.EventAsleep, woken.Seq)
	if n := s.wakes(again.Seq); n != 1 {
		t.Errorf("%d wakes", n)
	}
}

func isBusy(err error) bool { // one picture at a time
	return errors.Is(err, &control.Error{Kind: control.Busy})
}

// wakes counts the wakes up to an event.
func (s *supervised) wakes(until uint64) (n int) {
	for e, err := range s.client.Events(s.t.Context(), 0) {
		must(s.t, err)
		if e.Name == control.EventWoken {
			n++
		}
		if e.Seq >= until {
			return n
		}
	}
	return n
}

// I2: while a person holds the desktop does not sleep, and a takeover wakes one that does.
func TestI2HeldScreenStaysAwake(t *testing.T) {
	s := newSupervisedWith(t, func(c *supervise.Config) {
		c.Idle = screen.IdlePolicy{After: time.Second, Action: screen.IdleSleep}
	})
	asleep := s.awaitEvent(control.EventAsleep, 0)
	_, err := s.client.Take(t.Context(), control.TakeRequest{Viewer: "ann"})
	must(t, err)
	woken := s.awaitEvent(control.EventWoken, asleep.Seq)
	if err := s.client.Sleep(t.Context()); err == nil {
		t.Error("an operator put a held screen to sleep")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // twice what the clock waits for
	defer cancel()
	for e, err := range s.client.Events(ctx, woken.Seq) {
		if err == nil && e.Name == control.EventAsleep {
			t.Errorf("under a person the screen fell asleep: %s", e.Reason)
		}
	}
	_, err = s.client.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"})
	must(t, err)
	s.awaitEvent(control.EventAsleep, woken.Seq)
}

// I1: with idle_action = "exit" the screen ends, with code 0 and the reason.
func TestI1Exit(t *testing.T) {
	s := newSupervisedWith(t, func(c *supervise.Config) {
		c.Idle = screen.IdlePolicy{After: time.Second, Action: screen.IdleExit}
	})
	exit, err := s.client.Wait(t.Context())
	must(t, err)
	if exit.Code != 0 || !strings.Contains(exit.Reason.String(), "not used for 1s") {
		t.Errorf("%+v", exit)
	}
}

// I3: asked to sleep and to wake, by an operator; what was on the screen is a desktop again.
func TestI3Operator(t *testing.T) {
	s := newSupervised(t)
	first, err := s.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	must(t, err)
	must(t, s.client.Sleep(t.Context()))
	must(t, s.client.Sleep(t.Context())) // it does
	must(t, s.client.Wake(t.Context()))
	must(t, s.client.Wake(t.Context()))
	second, err := s.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	must(t, err)
	if first.Epoch != second.Epoch || len(second.Data) < 1000 {
		t.Errorf("epochs %d, %d; %d bytes", first.Epoch, second.Epoch, len(second.Data))
	}
	if n := len(s.named("Xvnc")); n != 1 {
		t.Errorf("%d X servers", n)
	}
}
