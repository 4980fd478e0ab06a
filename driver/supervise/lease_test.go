// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

const leaseName = "lease.json"

// take and free change hands through the API.
func (r *rig) take(viewer lease.ViewerID) lease.Public {
	r.t.Helper()
	held, err := r.client.Take(r.t.Context(), control.TakeRequest{Viewer: viewer, Reason: screen.Distrust("a captcha")})
	must(r.t, err)
	return held
}

func (r *rig) release(viewer lease.ViewerID) lease.Public {
	r.t.Helper()
	held, err := r.client.Release(r.t.Context(), control.ReleaseRequest{Viewer: viewer})
	must(r.t, err)
	return held
}

func (r *rig) leaseNow() lease.Public {
	r.t.Helper()
	held, err := r.client.Lease(r.t.Context())
	must(r.t, err)
	return held
}

// nextRun is a supervisor of the profile's next run on the same directory.
func (r *rig) nextRun(change func(*Config)) *rig {
	r.t.Helper()
	r.end()
	c := r.config
	c.Instance += "+"
	if change != nil {
		change(&c)
	}
	return newRigIn(r.t, r.dir, c)
}

// refusesAgent checks that what the agent may do is refused with this kind.
func (r *rig) refusesAgent(kind control.Kind) {
	r.t.Helper()
	r.enter(screen.Ready, control.EventReady, "")
	if _, err := r.client.Screenshot(r.t.Context(), control.ScreenshotRequest{}); !isKind(err, kind) {
		r.t.Errorf("screenshot: %v, want %s", err, kind)
	}
	if _, err := r.client.Exec(r.t.Context(), control.ExecRequest{Argv: []string{"true"}}); !isKind(err, kind) {
		r.t.Errorf("exec: %v, want %s", err, kind)
	}
}

// L2, X26: no lease is the agent's only where nothing else knows of the profile; one
// that says nothing is a human's until an operator frees it.
func TestL2NoLease(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		known bool
		want  lease.Holder
	}{
		"nothing at all":        {want: lease.Agent},
		"driver state":          {known: true, want: lease.Human},
		"a screen record":       {files: map[string]string{recordName: `{"v":1,"instance":"other"}`}, want: lease.Human},
		"an unreadable record":  {files: map[string]string{recordName: `{"v"`}, want: lease.Human},
		"an empty lease":        {files: map[string]string{leaseName: ``}, want: lease.Human},
		"a cut lease":           {files: map[string]string{leaseName: `{"v":1,"holder":"agent","ep`}, want: lease.Human},
		"an unknown holder":     {files: map[string]string{leaseName: `{"v":1,"holder":"robot","epoch":5}`}, want: lease.Human},
		"a whole lease":         {files: map[string]string{leaseName: `{"v":1,"holder":"agent","epoch":5}`}, known: true, want: lease.Agent},
		"an older lease":        {files: map[string]string{leaseName: `{"v":1,"holder":"agent","epoch":5}`, recordName: `{"v":1,"epoch":6}`}, want: lease.Human},
		"a record of this kind": {files: map[string]string{leaseName: `{"v":1,"holder":"agent","epoch":6}`, recordName: `{"v":1,"epoch":6}`}, want: lease.Agent},
	} {
		t.Run(name, func(t *testing.T) {
			first := newRig(t, nil)
			first.end()
			old, err := filepath.Glob(filepath.Join(first.dir, "*"))
			must(t, err)
			for _, path := range old {
				must(t, os.Remove(path))
			}
			for file, text := range tc.files {
				must(t, os.WriteFile(filepath.Join(first.dir, file), []byte(text), 0o600))
			}
			r := first.nextRun(func(c *Config) { c.Known = tc.known })
			found := r.leaseNow()
			if found.Holder != tc.want || found.Viewer != "" {
				t.Fatalf("the lease is %+v, want the %s's", found, tc.want)
			}
			if tc.want == lease.Agent {
				return
			}
			r.refusesAgent(control.HumanHasControl)
			if _, err := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: "anybody"}); !isKind(err, control.NotHolder) {
				t.Errorf("anybody hands it back: %v", err)
			}
			freed, err := r.client.Release(t.Context(), control.ReleaseRequest{Force: true})
			must(t, err)
			if freed.Holder != lease.Agent || freed.Epoch <= found.Epoch {
				t.Errorf("%+v became %+v", found, freed)
			}
		})
	}
}

// L3: epochs start at the time in milliseconds, rise by one at each change of hands,
// and at nothing else, also across supervisors and runs.
func TestL3Epochs(t *testing.T) {
	before := time.Now().UnixMilli()
	r := newRig(t, nil)
	first := r.leaseNow()
	if first.Holder != lease.Agent || int64(first.Epoch) < before || int64(first.Epoch) > time.Now().UnixMilli() {
		t.Fatalf("the first lease is %+v", first)
	}
	at := first.Epoch
	step := func(what string, got lease.Public, rise lease.Epoch, holder lease.Holder) {
		t.Helper()
		at += rise
		if got.Epoch != at || got.Holder != holder || r.leaseNow() != got {
			t.Errorf("%s: %+v, want epoch %d of the %s", what, got, at, holder)
		}
	}
	step("a release while the agent holds", r.release("ann"), 0, lease.Agent)
	step("a take", r.take("ann"), 1, lease.Human)
	step("the same again", r.take("ann"), 0, lease.Human)
	step("another one's", r.take("bob"), 1, lease.Human)
	step("a release", r.release("bob"), 1, lease.Agent)
	step("a release again", r.release("bob"), 0, lease.Agent)
	step("a take", r.take("ann"), 1, lease.Human)
	r.end()
	r = newRigIn(t, r.dir, r.config)
	step("another supervisor", r.leaseNow(), 0, lease.Human)
	r = r.nextRun(nil)
	step("another run", r.leaseNow(), 0, lease.Human)
	step("a release there", r.release("ann"), 1, lease.Agent)
}

// L4: a viewer that does not hold hands nothing back, and hears so.
func TestL4ReleaseByAnother(t *testing.T) {
	r := newRig(t, nil)
	r.take("ann")
	held := r.take("bob")
	_, err := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"})
	if !isKind(err, control.NotHolder) || strings.Contains(err.Error(), "bob") {
		t.Errorf("ann hears %v", err)
	}
	if now := r.leaseNow(); now != held {
		t.Errorf("%+v became %+v", held, now)
	}
}

// L6: a screenshot is refused while a person holds, before and after, and one is thrown
// away that a whole take-and-return fell into.
func TestL6Screenshot(t *testing.T) {
	r, f, _, path := newPictured(t, nil)
	type taken struct {
		shot control.Screenshot
		err  error
	}
	shoot := func(during func()) taken {
		t.Helper()
		done := make(chan taken, 1)
		go func() {
			shot, err := r.client.Screenshot(context.Background(), control.ScreenshotRequest{})
			done <- taken{shot, err}
		}()
		p, _ := f.asked(dialhome.OpDial)
		during()
		f.answer(p.ID, nil, dialServer(t, path))
		return <-done
	}
	if got := shoot(func() {}); got.err != nil || len(got.shot.Data) == 0 || got.shot.Epoch != r.leaseNow().Epoch {
		t.Fatalf("%d bytes of epoch %d, %v", len(got.shot.Data), got.shot.Epoch, got.err)
	}
	// Cut by the take, or late enough to see the return too.
	if got := shoot(func() { r.take("ann"); r.release("ann") }); !isKind(got.err, control.HumanHasControl) && !isKind(got.err, control.LeaseChanged) {
		t.Errorf("with a take and a return: %v", got.err)
	}
	if got := shoot(func() { r.take("ann") }); !isKind(got.err, control.HumanHasControl) {
		t.Errorf("with a take: %v", got.err)
	}
	r.refusesAgent(control.HumanHasControl) // the session is not even asked
	r.release("ann")
	// A screen that is busy is not waited for.
	busy := make(chan error, 1)
	go func() {
		_, err := r.client.Screenshot(context.Background(), control.ScreenshotRequest{})
		busy <- err
	}()
	p, _ := f.asked(dialhome.OpDial)
	r.take("ann")
	if err := <-busy; !isKind(err, control.HumanHasControl) {
		t.Errorf("a take under a busy screen: %v", err)
	}
	f.answer(p.ID, nil, dialServer(t, path))
	r.release("ann")
	if got := shoot(func() {}); got.err != nil || got.shot.Epoch != r.leaseNow().Epoch {
		t.Errorf("after the hand-back: epoch %d, %v", got.shot.Epoch, got.err)
	}
}

// L11, LSE-03: under a person a stop needs force, and the lease outlives supervisor and run.
func TestL11HeldScreen(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	held := r.take("ann")
	bounded, end := context.WithTimeout(t.Context(), limit)
	defer end()
	err := r.client.Stop(bounded, control.StopRequest{})
	if !isKind(err, control.Held) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("stop: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.client.Stop(ctx, control.StopRequest{Force: true}) }()
	f.asked(dialhome.OpStop)
	next := r.nextRun(func(c *Config) { c.Known, c.LeaseFloor = true, uint64(held.Epoch) })
	now := next.leaseNow()
	if now.Epoch != held.Epoch || now.Viewer != held.Viewer || now.Holder != lease.Human || now.Away.IsZero() {
		t.Errorf("%+v became %+v", held, now)
	}
	next.refusesAgent(control.HumanHasControl)
	next.release("ann")
}

// A screen that has ended is stopped already, whoever holds it.
func TestL11StopAfterTheEnd(t *testing.T) {
	s := newHelperSession(t, nil)
	s.rig.take("ann")
	must(t, s.Process.Kill())
	s.rig.wait()
	must(t, s.rig.client.Stop(t.Context(), control.StopRequest{}))
}

// L12: the viewer's id is a capability: everybody sees its handle, and nothing but the
// lease's own file knows more.
func TestL12Handle(t *testing.T) {
	const secret = lease.ViewerID("CANARY-7f3a")
	r := newRig(t, nil)
	held := r.take(secret)
	if held.Viewer != secret.Handle() || held.Reason.String() != "a captcha" {
		t.Errorf("taken: %+v", held)
	}
	status, err := r.client.Status(t.Context())
	must(t, err)
	if status.Lease.Viewer != secret.Handle() || status.Lease.Epoch != held.Epoch {
		t.Errorf("status: %+v", status.Lease)
	}
	events, _ := r.journal.after(0)
	_, stop := r.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	_, refused := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: "another"})
	r.end()
	record, err := os.ReadFile(filepath.Join(r.dir, recordName))
	must(t, err)
	for what, said := range map[string]any{"status": status, "events": events, "log": r.log.String(), "record": string(record),
		"a screenshot's refusal": fmt.Sprint(stop), "a release's refusal": fmt.Sprint(refused)} {
		text, err := json.Marshal(said)
		must(t, err)
		if strings.Contains(string(text), string(secret)) {
			t.Errorf("%s: %s", what, text)
		}
	}
	info, err := os.Stat(filepath.Join(r.dir, leaseName))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the lease has mode %v", info.Mode())
	}
}

// Each change of hands is an event with the holder and epoch that it brought.
func TestLeaseEvents(t *testing.T) {
	r := newRig(t, nil)
	taken := r.take("ann")
	back := r.release("ann")
	events, _ := r.journal.after(0)
	if len(events) != 2 {
		t.Fatalf("events %+v", events)
	}
	if e := events[0]; e.Name != control.EventTaken || e.Holder != lease.Human || e.Epoch != taken.Epoch || e.Reason.String() != "a captcha" {
		t.Errorf("%+v", e)
	}
	if e := events[1]; e.Name != control.EventHandedBack || e.Holder != lease.Agent || e.Epoch != back.Epoch {
		t.Errorf("%+v", e)
	}
	r.take("bob")
	r.enter(screen.Ready, control.EventReady, "")
	events, _ = r.journal.after(0)
	if e := events[len(events)-1]; e.Name != control.EventReady || e.Holder != lease.Human || e.Epoch != back.Epoch+1 {
		t.Errorf("%+v", e)
	}
}

// X26: a lease that is deleted, truncated, restored from an older copy or moved to
// another directory under a person never makes the agent the holder, and the epoch
// never falls.
func TestX26LostLease(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(t *testing.T, dir string, copied []byte)
		// forget says that the directory's own memory is gone too.
		forget bool
	}{
		"deleted":   {lose: func(t *testing.T, dir string, _ []byte) { must(t, os.Remove(filepath.Join(dir, leaseName))) }},
		"truncated": {lose: func(t *testing.T, dir string, _ []byte) { must(t, os.Truncate(filepath.Join(dir, leaseName), 10)) }},
		"restored": {lose: func(t *testing.T, dir string, copied []byte) {
			must(t, os.WriteFile(filepath.Join(dir, leaseName), copied, 0o600))
		}},
		"restored with its mark": {lose: func(t *testing.T, dir string, copied []byte) {
			must(t, os.WriteFile(filepath.Join(dir, leaseName), copied, 0o600))
			must(t, os.Remove(filepath.Join(dir, "lease.epoch")))
		}},
		"all of the directory": {forget: true, lose: func(t *testing.T, dir string, _ []byte) {
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			must(t, err)
			for _, file := range files {
				must(t, os.Remove(file))
			}
		}},
		"a copy of the whole directory": {forget: true, lose: func(t *testing.T, dir string, copied []byte) {
			must(t, os.WriteFile(filepath.Join(dir, leaseName), copied, 0o600))
			must(t, os.Remove(filepath.Join(dir, "lease.epoch")))
			must(t, os.Remove(filepath.Join(dir, recordName)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			copied, err := os.ReadFile(filepath.Join(r.dir, leaseName)) // the agent's
			must(t, err)
			held := r.take("ann")
			r.end()
			tc.lose(t, r.dir, copied)
			next := r.nextRun(func(c *Config) {
				if tc.forget { // then the plugin's word counts
					c.Known, c.LeaseFloor = true, uint64(held.Epoch)
				}
			})
			now := next.leaseNow()
			if now.Holder != lease.Human || now.Epoch < held.Epoch {
				t.Fatalf("%+v became %+v", held, now)
			}
			next.refusesAgent(control.HumanHasControl)
			freed, err := next.client.Release(t.Context(), control.ReleaseRequest{Force: true})
			must(t, err)
			if freed.Epoch <= held.Epoch {
				t.Errorf("epoch %d follows %d", freed.Epoch, held.Epoch)
			}
		})
	}
}

// A floor that nothing could follow is no floor: it would wedge the profile for ever.
func TestX26ImpossibleFloor(t *testing.T) {
	for _, floor := range []uint64{uint64(lease.MaxEpoch), 1<<64 - 1} {
		r := newRig(t, func(c *Config) { c.LeaseFloor = floor })
		if now := r.leaseNow(); now.Holder != lease.Agent {
			t.Errorf("floor %d: %+v", floor, now)
		}
		r.take("ann")
	}
}

// X26: the record keeps the newest epoch.
func TestX26RecordKeepsTheEpoch(t *testing.T) {
	r := newRig(t, nil)
	r.take("ann")
	want := r.release("ann").Epoch
	kept, _, err := loadRecord(r.supervisor.dir, r.config.Instance)
	must(t, err)
	if kept.Epoch != want {
		t.Errorf("the record has epoch %d, want %d", kept.Epoch, want)
	}
	if other, exists, err := loadRecord(r.supervisor.dir, "another run"); err != nil || !exists || other.Epoch != want || other.Ready {
		t.Errorf("another run finds %+v, %v", other, err)
	}
}

// LSE-08: a person gets the screen on a broken disk, and the status says what is wrong.
func TestLeaseTrouble(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Warnings = []string{"memory is short"} })
	lock := filepath.Join(r.dir, "lease.lock")
	must(t, os.Remove(lock))
	must(t, os.Mkdir(lock, 0o700))
	r.take("ann")
	status, err := r.client.Status(t.Context())
	must(t, err)
	if len(status.Warnings) != 2 || !strings.Contains(status.Warnings[1], "lease could not be written") {
		t.Errorf("warnings %q", status.Warnings)
	}
	if _, err := r.client.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"}); !isKind(err, control.Internal) || !strings.Contains(err.Error(), "Repair the disk") {
		t.Errorf("release: %v", err)
	}
	r.refusesAgent(control.HumanHasControl)
	must(t, os.Remove(lock))
	r.release("ann")
	if status, err := r.client.Status(t.Context()); err != nil || len(status.Warnings) != 1 {
		t.Errorf("warnings %q, %v", status.Warnings, err)
	}
}
