// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
	"github.com/botscreen/botscreen/shared/testkit/wallclock"
)

// asleepRig is a supervisor whose desktop sleeps, on a fake session.
func asleepRig(t *testing.T, change func(*Config)) (*rig, *fake, *helper) {
	t.Helper()
	r, f, server, _ := newPictured(t, change)
	slept := make(chan error, 1)
	go func() { slept <- r.client.Sleep(t.Context()) }()
	p, _ := f.asked(dialhome.OpSleep)
	f.answer(p.ID, nil)
	must(t, <-slept)
	return r, f, server
}

// wake asks for the desktop and hands over the outcome.
func (r *rig) wake() chan error {
	outcome := make(chan error, 1)
	go func() { outcome <- r.client.Wake(r.t.Context()) }()
	return outcome
}

// S12, P10a: the desktop that wakes is accepted like that of a start, on the number that
// the session has it on.
func TestI4Woken(t *testing.T) {
	r, f, server := asleepRig(t, nil)
	outcome := r.wake()
	p, _ := f.asked(dialhome.OpStart)
	var request dialhome.Start
	must(t, dialhome.Decode(p.Body, &request))
	if request.HasPlan || request.Display != 77 {
		t.Errorf("asked for %+v", request)
	}
	f.answer(p.ID, dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: server.identity.PID, XStart: server.identity.Start})
	must(t, <-outcome)
	status, err := r.client.Status(t.Context())
	must(t, err)
	if status.State != screen.Ready || status.Display != ":77" {
		t.Errorf("%+v", status)
	}
}

// I3: whoever wakes gets the error of the start, and the screen sleeps on.
func TestI3WakeFails(t *testing.T) {
	r, f, _ := asleepRig(t, nil)
	outcome := r.wake()
	p, _ := f.asked(dialhome.OpStart)
	must(t, f.Send(dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: dialhome.KindFailed, Message: "Xvnc stopped"}}))
	if err := <-outcome; !isKind(err, control.StartFailed) || !strings.Contains(err.Error(), "Xvnc stopped") {
		t.Errorf("the caller hears %v", err)
	}
	status, err := r.client.Status(t.Context())
	must(t, err)
	if status.State != screen.Asleep || !strings.Contains(status.Reason.String(), "Xvnc stopped") {
		t.Errorf("%+v", status)
	}
}

// I3: a thumbnail, which dashboards ask for, wakes nothing.
func TestI3ThumbnailWakesNothing(t *testing.T) {
	r, _, _ := asleepRig(t, nil)
	if _, err := r.client.Screenshot(t.Context(), control.ScreenshotRequest{Thumbnail: true}); !isKind(err, control.Busy) || !strings.Contains(err.Error(), "asleep") {
		t.Errorf("the caller hears %v", err)
	}
	if status, err := r.client.Status(t.Context()); err != nil || status.State != screen.Asleep {
		t.Errorf("%+v, %v", status, err)
	}
}

// D4, D5: somebody took the number meanwhile, so another one of the band is tried.
func TestD5WakeOnAnotherNumber(t *testing.T) {
	r, f, server := asleepRig(t, func(c *Config) { c.FirstDisplay, c.LastDisplay, c.Isolation = 20, 77, screen.Host })
	outcome := r.wake()
	p, _ := f.asked(dialhome.OpStart)
	must(t, f.Send(dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: dialhome.KindDisplayTaken, Message: "taken"}}))
	p, _ = f.asked(dialhome.OpStart)
	var request dialhome.Start
	must(t, dialhome.Decode(p.Body, &request))
	if request.Display != 20 {
		t.Errorf("the second try is %d", request.Display)
	}
	f.answer(p.ID, dialhome.Desktop{State: dialhome.Running, Display: 20, XPID: server.identity.PID, XStart: server.identity.Start})
	must(t, <-outcome)
}

// M1, M2: the floor guards a wake too; the caller gets the figures, and nothing is started.
func TestM1WakeBelowTheFloor(t *testing.T) {
	r, _, _ := asleepRig(t, func(c *Config) { c.MinFreeMemoryMB = 1 << 30 })
	err := <-r.wake()
	if !isKind(err, control.StartFailed) || !strings.Contains(err.Error(), "1073741824 MB") {
		t.Errorf("the caller hears %v", err)
	}
	if status, err := r.client.Status(t.Context()); err != nil || status.State != screen.Asleep {
		t.Errorf("%+v, %v", status, err)
	}
}

// S11: the next supervisor of a sleeping screen finds it asleep, and may wake it.
func TestS11AdoptAsleep(t *testing.T) {
	r, _, server := asleepRig(t, nil)
	r.end()
	next := newRigIn(t, r.dir, r.config)
	f := next.session(dialhome.Desktop{State: dialhome.Idle})
	next.awaitState(screen.Asleep)
	outcome := next.wake()
	p, _ := f.asked(dialhome.OpStart)
	f.answer(p.ID, dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: server.identity.PID, XStart: server.identity.Start})
	must(t, <-outcome)
}

// One that died while the desktop woke: the next supervisor takes what came of it.
func TestS11AdoptWaking(t *testing.T) {
	r, _, server := asleepRig(t, nil)
	r.end()
	next := newRigIn(t, r.dir, r.config)
	next.session(dialhome.Desktop{State: dialhome.Running, Display: 78, XPID: server.identity.PID, XStart: server.identity.Start})
	next.awaitState(screen.Ready)
}

// A session that never heard that it should sleep is told again before it wakes.
func TestWakeOfASessionThatRuns(t *testing.T) {
	r, f, server := asleepRig(t, nil)
	outcome := r.wake()
	p, _ := f.asked(dialhome.OpStart)
	must(t, f.Send(dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: dialhome.KindState, Message: "it is running"}}))
	p, _ = f.asked(dialhome.OpSleep)
	f.answer(p.ID, nil)
	p, _ = f.asked(dialhome.OpStart)
	f.answer(p.ID, dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: server.identity.PID, XStart: server.identity.Start})
	must(t, <-outcome)
}

// I1, I2: what counts as use: a viewer, a person who is waited for, a person who holds.
func TestI2WhatCountsAsUse(t *testing.T) {
	r, _ := newViewable(t)
	unused := func() bool {
		_, ok := r.unusedFor(time.Now())
		return ok
	}
	if !unused() {
		t.Fatal("somebody uses the screen")
	}
	end, err := r.begin(t.Context(), "test")
	must(t, err)
	if unused() {
		t.Error("a use does not count")
	}
	end()
	end()
	bob, err := r.view(control.Hello{Viewer: "bob", Mode: control.Watch})
	must(t, err)
	bob.send()
	if unused() {
		t.Error("a viewer does not count")
	}
	must(t, bob.Close())
	r.await("the viewer is gone", func() bool { return len(r.relay.Viewers()) == 0 })
	_, err = r.client.Ask(t.Context(), control.AskRequest{Reason: "a captcha"})
	must(t, err)
	if unused() {
		t.Error("a person who is waited for does not count")
	}
	r.take("ann")
	if unused() {
		t.Error("a person who holds does not count")
	}
	r.release("ann")
	if !unused() {
		t.Error("the screen stays in use")
	}
}

// MEM-10: a wall clock that is set, or went on while the node was suspended, puts nothing
// to sleep: what counts is time in which the screen could have been used.
func TestMEM10IdleClock(t *testing.T) {
	r, _ := newViewable(t)
	for _, jump := range []time.Duration{8 * time.Hour, -time.Hour} {
		if d, ok := r.unusedFor(wallclock.Jumped(time.Now(), jump)); !ok || d > limit {
			t.Errorf("after a jump of %s the screen counts as unused for %s, %v", jump, d, ok)
		}
	}
	if d, _ := r.unusedFor(time.Now().Add(time.Hour)); d < time.Hour {
		t.Errorf("an hour later it counts as unused for %s", d)
	}
}
