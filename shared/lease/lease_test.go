// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// do makes a step that must succeed.
func do(t *testing.T) func(Lease, error) Lease {
	return func(l Lease, err error) Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestL3EpochCountsChangesOfHands(t *testing.T) {
	do, why := do(t), screen.Distrust("login")
	l := First(noon)
	if l.Holder != Agent || l.Epoch != Epoch(noon.UnixMilli()) {
		t.Fatalf("first lease = %+v", l)
	}
	start := l.Epoch
	for i, step := range []struct {
		what string
		to   Lease
		want Epoch
	}{
		{"a takes", do(l.Take("a", why, noon)), 1},
		{"a takes again", do(do(l.Take("a", why, noon)).Take("a", why, noon.Add(time.Hour))), 1},
		{"agent's lease is freed", do(l.Free(noon)), 0},
		{"a releases what the agent has", do(l.Release("a", noon)), 0},
		{"a takes, b takes", do(do(l.Take("a", why, noon)).Take("b", why, noon)), 2},
		{"a takes and releases", do(do(l.Take("a", why, noon)).Release("a", noon)), 2},
		{"a takes, leaves and comes back", do(l.Take("a", why, noon)).Left("a", noon).Back("a"), 1},
	} {
		if got := step.to.Epoch - start; got != step.want {
			t.Errorf("%d, %s: the epoch rose by %d, want %d", i, step.what, got, step.want)
		}
	}
	again := do(do(l.Take("a", why, noon)).Take("a", screen.Distrust("other"), noon.Add(time.Hour)))
	if !again.Since.Equal(noon) || again.Reason != why {
		t.Errorf("taking again changed the lease: %+v", again)
	}
}

func TestL3NoEpochAbove2To53(t *testing.T) {
	l := Lease{Holder: Agent, Epoch: MaxEpoch - 1}
	l, err := l.Take("a", screen.Untrusted{}, noon)
	if err != nil || l.Epoch != MaxEpoch {
		t.Fatalf("%+v, %v", l, err)
	}
	if to, err := l.Free(noon); !errors.Is(err, ErrExhausted) || to != l {
		t.Errorf("%+v, %v", to, err)
	}
}

func TestL4OnlyTheHolderReleases(t *testing.T) {
	l := do(t)(First(noon).Take("a", screen.Untrusted{}, noon))
	for _, v := range []ViewerID{"b", "", ViewerID(ViewerID("a").Handle())} {
		if to, err := l.Release(v, noon); err != nil || to != l {
			t.Errorf("%q releases: %+v, %v", string(v), to, err)
		}
	}
	nobody := unknown("lost", 7, noon)
	if to, err := nobody.Release("", noon); err != nil || to != nobody {
		t.Errorf("nobody releases: %+v, %v", to, err)
	}
	for _, v := range []ViewerID{"", "a\nb", "é", ViewerID(strings.Repeat("x", 129))} {
		if _, err := l.Take(v, screen.Untrusted{}, noon); !errors.Is(err, ErrViewerID) {
			t.Errorf("%q takes: %v", string(v), err)
		}
	}
}

// L6: the epoch is compared, not the holder: a whole take and return voids what
// the agent decided before (LSE-01), and a caller that forgot it is refused
// (LSE-11).
func TestL6Admit(t *testing.T) {
	do, p := do(t), DefaultPolicy()
	before := First(noon)
	taken := do(before.Take("a", screen.Untrusted{}, noon))
	after := do(taken.Release("a", noon))
	if err := before.Admit(before.Epoch, p, noon); err != nil {
		t.Error(err)
	}
	var held *HeldError
	if err := taken.Admit(before.Epoch, p, noon); !errors.As(err, &held) || held.Left {
		t.Errorf("under a human: %v", err)
	}
	if err := taken.Admit(taken.Epoch, p, noon); !errors.As(err, &held) {
		t.Errorf("with the human's epoch: %v", err)
	}
	var changed *ChangedError
	for _, seen := range []Epoch{0, before.Epoch, taken.Epoch, after.Epoch + 1} {
		if err := after.Admit(seen, p, noon); !errors.As(err, &changed) || changed.Now != after.Epoch {
			t.Errorf("epoch %d after take and return: %v", seen, err)
		}
	}
}

func TestL10Away(t *testing.T) {
	do := do(t)
	p := Policy{Grace: time.Minute}
	l := do(First(noon).Take("a", screen.Untrusted{}, noon))
	if away := l.Left("b", noon); away != l {
		t.Errorf("a stranger's leaving counts: %+v", away)
	}
	gone := l.Left("a", noon)
	if again := gone.Left("a", noon.Add(time.Hour)); again != gone {
		t.Errorf("leaving twice starts the grace again: %+v", again)
	}
	for after, want := range map[time.Duration]Presence{-time.Hour: Gone, 0: Gone, 59 * time.Second: Gone, time.Minute: Parked, 1000 * time.Hour: Parked} {
		if got := gone.Presence(p, noon.Add(after)); got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
		// LSE-14: without a limit it is never given back, but the agent is told.
		if to, err := gone.Expire(p, noon.Add(after)); err != nil || to != gone {
			t.Errorf("after %v it expired: %+v, %v", after, to, err)
		}
		err := gone.Admit(l.Epoch, p, noon.Add(after))
		if left := strings.Contains(fmt.Sprint(err), "who left"); left != (want == Parked) {
			t.Errorf("after %v the agent is told %v", after, err)
		}
	}
	if l.Presence(p, noon.Add(time.Hour)) != Present || gone.Back("a").Presence(p, noon.Add(time.Hour)) != Present {
		t.Error("an attached holder is not present")
	}
	p.AwayLimit = time.Hour
	limit := noon.Add(time.Hour + time.Minute)
	if to := do(gone.Expire(p, limit.Add(-1))); to != gone {
		t.Errorf("expired early: %+v", to)
	}
	if to := do(gone.Expire(p, limit)); to.Holder != Agent || to.Epoch != gone.Epoch+1 {
		t.Errorf("at the limit: %+v", to)
	}
	if to := do(l.Expire(p, limit)); to != l {
		t.Errorf("a present holder expired: %+v", to)
	}
	if lost := unknown("lost", 7, noon); do(lost.Expire(p, limit)) != lost {
		t.Error("a lost lease expired")
	}
	for at, want := range map[time.Time]time.Time{noon: noon.Add(time.Minute), noon.Add(time.Minute): limit} {
		if got := gone.NextChange(p, at); !got.Equal(want) {
			t.Errorf("next change after %v: %v, want %v", at, got, want)
		}
	}
	if got := l.NextChange(p, noon); !got.IsZero() {
		t.Errorf("a present holder changes at %v", got)
	}
}

func TestL11Stop(t *testing.T) {
	p := DefaultPolicy()
	l := do(t)(First(noon).Take("a", screen.Untrusted{}, noon))
	var held *HeldError
	if err := l.MayStop(false, p, noon); !errors.As(err, &held) || held.Lease.Epoch != l.Epoch {
		t.Errorf("stop under a human: %v", err)
	}
	if l.MayStop(true, p, noon) != nil || First(noon).MayStop(false, p, noon) != nil {
		t.Error("stop with force, or under the agent, is refused")
	}
}

// L12, LSE-07: the id is in nothing that is shown, and what is shown gives no power.
func TestL12ViewerIDIsACapability(t *testing.T) {
	const secret = "CANARY-viewer-id"
	l := do(t)(First(noon).Take(secret, screen.Distrust("login"), noon))
	public, err := json.Marshal(l.Public())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("taken", "viewer", l.Viewer, "lease", l)
	shown := []string{string(public), string(whole), log.String(), l.held(DefaultPolicy(), noon).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, l), fmt.Sprintf(verb, l.Viewer), fmt.Sprintf(verb, Claim{Viewer: secret}))
	}
	for _, text := range shown {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("the id is in %q", text)
		}
	}
	handle := l.Public().Viewer
	if len(handle) != 12 || l.HeldBy(ViewerID(handle)) || ViewerID("").Handle() != "" {
		t.Errorf("handle = %q", handle)
	}
}

// L14, LSE-05: in all six orders of delivery the newest lease is what remains.
func TestL14LateNews(t *testing.T) {
	text, err := os.ReadFile("testdata/lease-events.json")
	if err != nil {
		t.Fatal(err)
	}
	type news struct {
		Epoch  Epoch
		Holder Holder
	}
	var fixture struct {
		Deliveries []news
		Expect     news
	}
	if err := json.Unmarshal(text, &fixture); err != nil || len(fixture.Deliveries) != 3 {
		t.Fatal(err)
	}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var seen Seen
		var last Epoch
		for _, i := range order {
			d := fixture.Deliveries[i]
			if newer := seen.Observe(Public{Holder: d.Holder, Epoch: d.Epoch}); newer != (d.Epoch > last) {
				t.Errorf("order %v: epoch %d after %d is newer: %v", order, d.Epoch, last, newer)
			}
			last = max(last, d.Epoch)
		}
		if got := seen.Lease(); got.Epoch != fixture.Expect.Epoch || got.Holder != fixture.Expect.Holder {
			t.Errorf("order %v: %+v", order, got)
		}
	}
	var seen Seen
	seen.Observe(Public{Holder: Agent, Epoch: 5})
	if !seen.Observe(Public{Holder: Human, Epoch: 5}) || seen.Observe(Public{Holder: Agent, Epoch: 5}) {
		t.Error("of one epoch the human's lease does not count")
	}
}
