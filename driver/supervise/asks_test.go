// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

// L13: the agent asks for a person, people see it, and the agent hears of the hand-back,
// with the epoch to go on with.
func TestL13Ask(t *testing.T) {
	r := newRig(t, nil)
	asked, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "a captcha\x1b[2J", Deadline: time.Now().Add(time.Hour)})
	must(t, err)
	status, err := r.client.Status(t.Context())
	must(t, err)
	if len(status.Asks) != 1 || status.Asks[0] != asked || asked.Reason.String() != "a captcha·[2J" {
		t.Errorf("the status has %+v, asked was %+v", status.Asks, asked)
	}
	events, _ := r.journal.after(0)
	if e := events[len(events)-1]; e.Name != control.EventHumanWanted || e.Reason != asked.Reason {
		t.Errorf("%+v", e)
	}
	if _, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "again"}); !isKind(err, control.Busy) || !strings.Contains(err.Error(), asked.ID) {
		t.Errorf("a second one: %v", err)
	}
	if got, err := r.client.AwaitAsk(t.Context(), asked.ID, 0); err != nil || got.State != control.AskOpen {
		t.Errorf("%+v, %v", got, err)
	}
	waited := make(chan control.AskOutcome, 1)
	go func() {
		got, err := r.client.AwaitAsk(t.Context(), asked.ID, limit)
		if err != nil {
			t.Error(err)
		}
		waited <- got
	}()
	r.take("ann")
	if got, err := r.client.AwaitAsk(t.Context(), asked.ID, 0); err != nil || got.State != control.AskTaken || got.Lease.Holder != lease.Human {
		t.Errorf("%+v, %v", got, err)
	}
	if status, err := r.client.Status(t.Context()); err != nil || len(status.Asks) != 0 {
		t.Errorf("still asked for: %+v, %v", status.Asks, err)
	}
	r.take("bob") // another person: the ask goes on
	back := r.release("bob")
	if got := <-waited; got.State != control.AskHandedBack || got.Held <= 0 || got.Lease != back || got.Ask != asked {
		t.Errorf("%+v", got)
	}
	if _, err := r.client.AwaitAsk(t.Context(), "0123456789abcdef", 0); !isKind(err, control.Gone) {
		t.Errorf("an ask that is none: %v", err)
	}
}

// L13: an ask under a person's hands waits for the hand-back.
func TestL13AskWhileHeld(t *testing.T) {
	r := newRig(t, nil)
	r.take("ann")
	asked, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "the code"})
	must(t, err)
	if got, err := r.client.AwaitAsk(t.Context(), asked.ID, 0); err != nil || got.State != control.AskTaken || !got.Deadline.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	r.release("ann")
	if got, err := r.client.AwaitAsk(t.Context(), asked.ID, limit); err != nil || got.State != control.AskHandedBack {
		t.Errorf("%+v, %v", got, err)
	}
}

// X25: all faults of an ask are named at once.
func TestX25AskFaults(t *testing.T) {
	r := newRig(t, nil)
	for name, tc := range map[string]struct {
		req  control.AskRequest
		want []string
	}{
		"nothing":  {control.AskRequest{}, []string{"reason"}},
		"too long": {control.AskRequest{Reason: strings.Repeat("ä", 301), Deadline: time.Now().Add(25 * time.Hour)}, []string{"301 characters", "deadline"}},
		"too late": {control.AskRequest{Reason: "x", Deadline: time.Now().Add(-time.Second)}, []string{"deadline"}},
	} {
		_, err := r.client.Ask(t.Context(), tc.req)
		for _, want := range tc.want {
			if !isKind(err, control.BadRequest) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	events, _ := r.journal.after(0)
	if len(events) != 0 {
		t.Errorf("%d events of asks that were refused", len(events))
	}
}

// X25: six an hour, one at a time; L13: a deadline ends one to which nobody came.
func TestX25AskBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsks()
		agent := func() lease.Lease { return lease.First(time.Now()) }
		begin := time.Now()
		for i := range control.MaxAsksPerHour {
			asked, err := a.add(control.AskRequest{Reason: "x", Deadline: time.Now().Add(time.Minute)}, agent, time.Now())
			must(t, err)
			time.Sleep(time.Minute)
			if w, _, ok := a.look(asked.ID, time.Now()); !ok || w.state != control.AskExpired || len(a.open(time.Now())) != 0 {
				t.Errorf("ask %d after its deadline: %+v", i, w)
			}
		}
		if _, err := a.add(control.AskRequest{Reason: "x"}, agent, time.Now()); !isKind(err, control.Busy) || !strings.Contains(err.Error(), "6 times") {
			t.Errorf("the seventh: %v", err)
		}
		time.Sleep(time.Until(begin.Add(time.Hour)))
		asked, err := a.add(control.AskRequest{Reason: "x", Deadline: time.Now().Add(time.Minute)}, agent, time.Now())
		must(t, err)
		if _, err := a.add(control.AskRequest{Reason: "x"}, agent, time.Now()); !isKind(err, control.Busy) || !strings.Contains(err.Error(), asked.ID) {
			t.Errorf("beside an open one: %v", err)
		}
		// Who comes in time is not too late afterwards.
		a.leaseChanged(lease.Notice{Kind: lease.Taken}, time.Now())
		time.Sleep(time.Hour)
		a.leaseChanged(lease.Notice{Kind: lease.HandedBack}, time.Now())
		if w, _, _ := a.look(asked.ID, time.Now()); w.state != control.AskHandedBack || w.held != time.Hour {
			t.Errorf("%+v", w)
		}
		if len(a.all) > control.MaxAsksPerHour {
			t.Errorf("%d are kept", len(a.all))
		}
	})
}

// L13: who waits hears of the deadline when it passes, not when they stop waiting.
func TestL13Deadline(t *testing.T) {
	r := newRig(t, nil)
	asked, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "x", Deadline: time.Now().Add(50 * time.Millisecond)})
	must(t, err)
	began := time.Now()
	got, err := r.client.AwaitAsk(t.Context(), asked.ID, control.MaxAskWait)
	if err != nil || got.State != control.AskExpired || time.Since(began) > limit {
		t.Errorf("after %s: %+v, %v", time.Since(began), got, err)
	}
}
