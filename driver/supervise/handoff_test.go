// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// newBrowsing supervises a ready screen on a fake session that has said its browser runs.
func newBrowsing(t *testing.T) (*rig, *fake) {
	t.Helper()
	r := newRig(t, nil)
	f := r.session(starting())
	r.enter(screen.Ready, control.EventReady, "")
	f.event(dialhome.EventBrowser, dialhome.Browser{Running: true})
	r.await("the browser runs", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.browser != nil && r.browser.Running
	})
	return r, f
}

// answerAll answers every request with the body that answer gives, or not at all where it
// gives nil, until the link ends.
func (f *fake) answerAll(answer func(dialhome.Op) any) {
	for {
		p, passed, err := f.Receive()
		dialhome.CloseAll(passed)
		if err != nil {
			return
		}
		body := answer(p.Op)
		if body != nil && f.Send(dialhome.Packet{ID: p.ID, OK: true, Body: dialhome.Encode(body)}) != nil {
			return
		}
	}
}

// L13, X25: after the hand-back the agent hears how long it was, which programs had windows
// and which site the browser showed before and after, and neither titles nor addresses.
func TestL13HandOffNote(t *testing.T) {
	r, f := newBrowsing(t)
	windows := make(chan []dialhome.Window, 1)
	var filled atomic.Bool
	go f.answerAll(func(op dialhome.Op) any {
		switch op {
		case dialhome.OpWindows:
			return dialhome.Windows{Windows: <-windows}
		case dialhome.OpBrowserPage:
			return dialhome.BrowserPage{Origin: "https://bank.test", Filled: filled.Load()}
		}
		return struct{}{}
	})
	asked, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "a code"})
	must(t, err)
	mail := dialhome.Window{Title: "Inbox https://mail.example/?code=CANARY#CANARY", Class: "mail", Type: "normal"}
	windows <- []dialhome.Window{mail, {Class: "panel", Type: "dock"}, mail}
	r.take("ann")
	windows <- []dialhome.Window{mail, {Title: "CANARY", Class: "bank\x1b", Type: "dialog"}}
	// X18: with a filled password field the person is asked, once in a hold; whoever does not
	// hold is not, and force does not ask.
	filled.Store(true)
	for _, viewer := range []lease.ViewerID{"bob", "ann"} {
		_, err := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: viewer})
		if want := map[lease.ViewerID]control.Kind{"bob": control.NotHolder, "ann": control.PasswordFilled}[viewer]; !isKind(err, want) {
			t.Errorf("%s is told %v, want %s", viewer, err, want)
		}
	}
	if held := r.leaseNow(); held.Holder != lease.Human {
		t.Errorf("the agent has the screen: %+v", held)
	}
	r.release("ann")
	got, err := r.client.AwaitAsk(t.Context(), asked.ID, 0)
	must(t, err)
	if got.State != control.AskHandedBack || got.Note == nil || got.Note.Held <= 0 ||
		!slices.Equal(got.Note.Before, []string{"mail"}) || !slices.Equal(got.Note.After, []string{"bank·", "mail"}) ||
		got.Note.OriginBefore.String() != "https://bank.test" || got.Note.OriginAfter.String() != "https://bank.test" {
		t.Errorf("%+v, note %+v", got, got.Note)
	}
	events, _ := r.journal.after(0)
	text, _ := json.Marshal([]any{got, events})
	if strings.Contains(string(text), "CANARY") || strings.Contains(string(text), "example") {
		t.Errorf("the agent and the events get %s", text)
	}
}

// X18: a browser that does not answer may show a filled password field too, so the person is
// asked, once in a hold.
func TestX18SilentBrowserAsksOnce(t *testing.T) {
	for name, answers := range map[string]bool{"unsure": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			r, f := newBrowsing(t)
			go f.answerAll(func(op dialhome.Op) any {
				switch {
				case op != dialhome.OpBrowserPage:
					return struct{}{}
				case answers:
					return dialhome.BrowserPage{Unsure: true}
				}
				return nil
			})
			r.take("ann")
			_, err := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"})
			if !isKind(err, control.PasswordFilled) || !strings.Contains(err.Error(), "does not say in time") {
				t.Errorf("she is told %v", err)
			}
			if held := r.leaseNow(); held.Holder != lease.Human {
				t.Errorf("the agent has the screen: %+v", held)
			}
			r.release("ann")
			if held := r.leaseNow(); held.Holder != lease.Agent {
				t.Errorf("the second hand-back leaves %+v", held)
			}
		})
	}
}

// L13: what the agent asks for outlives the supervisor, with what happened to the lease
// meanwhile; the asks of another run, and a file that is broken, do not count.
func TestL13AsksSurviveTheSupervisor(t *testing.T) {
	r := newRig(t, nil)
	asked, err := r.client.Ask(t.Context(), control.AskRequest{Reason: "a captcha", Deadline: time.Now().Add(time.Hour)})
	must(t, err)
	r.end()
	next := newRigIn(t, r.dir, r.config)
	status, err := next.client.Status(t.Context())
	must(t, err)
	if len(status.Asks) != 1 || status.Asks[0].ID != asked.ID || !status.Asks[0].Deadline.Equal(asked.Deadline) || status.Asks[0].Reason != asked.Reason {
		t.Errorf("the next supervisor has %+v, asked was %+v", status.Asks, asked)
	}
	if _, err := next.client.Ask(t.Context(), control.AskRequest{Reason: "again"}); !isKind(err, control.Busy) {
		t.Errorf("a second one: %v", err)
	}
	next.take("ann")
	next.end()
	third := newRigIn(t, r.dir, r.config)
	if got, err := third.client.AwaitAsk(t.Context(), asked.ID, 0); err != nil || got.State != control.AskTaken {
		t.Errorf("%+v, %v", got, err)
	}
	third.release("ann")
	third.end()
	fourth := newRigIn(t, r.dir, r.config)
	if got, err := fourth.client.AwaitAsk(t.Context(), asked.ID, 0); err != nil || got.State != control.AskHandedBack || got.Held <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	other := fourth.nextRun(nil)
	if _, err := other.client.AwaitAsk(t.Context(), asked.ID, 0); !isKind(err, control.Gone) {
		t.Errorf("another run: %v", err)
	}
	other.end()
	must(t, os.WriteFile(filepath.Join(r.dir, asksName), []byte(`{"v":1,"instance`), 0o600))
	broken := newRigIn(t, r.dir, r.config)
	if _, err := broken.client.Ask(t.Context(), control.AskRequest{Reason: "again"}); err != nil {
		t.Error(err)
	}
}

// A lease that changed while no supervisor ran moves the asks along.
func TestAsksFollowTheLease(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer dir.Close()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	write := func(state control.AskState) {
		t.Helper()
		text, err := json.Marshal(asksRecord{V: recordVersion, Instance: "i", Asks: []wishRecord{{
			Ask: control.Ask{ID: "a", Since: now.Add(-time.Hour)}, State: state, Taken: now.Add(-30 * time.Minute)}}})
		must(t, err)
		must(t, dir.WriteFile(asksName, text, 0o600))
	}
	human := lease.Lease{Holder: lease.Human, Viewer: "ann", Since: now.Add(-time.Minute), Epoch: 5}
	agent := lease.Lease{Holder: lease.Agent, Since: now.Add(-10 * time.Minute), Epoch: 6}
	for _, tc := range []struct {
		kept, want control.AskState
		held       lease.Lease
		hold       time.Duration
	}{
		{control.AskOpen, control.AskOpen, agent, 0}, {control.AskOpen, control.AskTaken, human, 0},
		{control.AskTaken, control.AskTaken, human, 0}, {control.AskTaken, control.AskHandedBack, agent, 20 * time.Minute},
		{control.AskExpired, control.AskExpired, human, 0},
	} {
		write(tc.kept)
		a := newAsks()
		must(t, a.load(dir, "i", tc.held, now))
		w, _, ok := a.look("a", now)
		if !ok || w.state != tc.want || w.held != tc.hold {
			t.Errorf("%s under the %s: %+v", tc.kept, tc.held.Holder, w)
		}
	}
}
