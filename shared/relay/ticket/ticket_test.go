// SPDX-License-Identifier: MPL-2.0

package ticket

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/testkit/wallclock"
)

func anybody(Grant) error { return nil }

func mint(t *testing.T, s *Store, grant Grant) Minted {
	t.Helper()
	m, err := s.Mint("operator", grant)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// R1: 32 random bytes, URL-safe, and what it grants is written down here.
func TestR1Ticket(t *testing.T) {
	s := NewStore()
	m := mint(t, s, Grant{Mode: Control, Viewer: "v"})
	if raw, err := base64.RawURLEncoding.DecodeString(string(m.Secret)); err != nil || len(raw) != 32 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if text := fmt.Sprintf("%v %+v %q", m, m, m.Secret); strings.Contains(text, string(m.Secret)) {
		t.Error("a ticket prints itself")
	}
	id, grant, err := s.Redeem(m.Secret, anybody)
	if err != nil || id != m.ID || grant != (Grant{Control, "v"}) {
		t.Errorf("%v %v %v", id, grant, err)
	}
	if _, _, err := s.Redeem(m.Secret, anybody); !errors.Is(err, ErrRefused) {
		t.Errorf("used twice: %v", err)
	}
}

func TestMintRefusals(t *testing.T) {
	s := NewStore()
	if _, err := s.Mint("operator", Grant{Mode: "use"}); err == nil {
		t.Error("an unknown mode")
	}
	if _, err := s.Mint("operator", Grant{Mode: Watch, Viewer: "\n"}); !errors.Is(err, lease.ErrViewerID) {
		t.Errorf("a bad viewer: %v", err)
	}
	// Without a viewer the id is made here, and differs each time.
	a, b := mint(t, s, Grant{Mode: Watch}), mint(t, s, Grant{Mode: Watch})
	if len(a.Grant.Viewer) < 20 || a.Grant.Viewer == b.Grant.Viewer {
		t.Error("guessable viewers")
	}
}

// SEC-06: of fifty uses at once one wins; expired, revoked and foreign ones are
// refused alike; a refusal that is not the ticket's fault leaves it.
func TestSEC06OneWinner(t *testing.T) {
	s := NewStore()
	m := mint(t, s, Grant{Mode: Watch})
	var won atomic.Int32
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, _, err := s.Redeem(m.Secret, anybody); err == nil {
				won.Add(1)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d winners", won.Load())
	}
}

func TestSEC06RefusalsLookAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		late, revoked := mint(t, s, Grant{Mode: Watch}), mint(t, s, Grant{Mode: Watch})
		foreign := mint(t, NewStore(), Grant{Mode: Watch})
		if !s.Revoke(revoked.ID) || s.Revoke(revoked.ID) {
			t.Error("revoke does not say what it did")
		}
		time.Sleep(Lifetime)
		for _, secret := range []Secret{late.Secret, revoked.Secret, foreign.Secret, "", "x"} {
			if _, grant, err := s.Redeem(secret, anybody); err != ErrRefused || grant != (Grant{}) {
				t.Errorf("%v %v", grant, err)
			}
		}
		last := mint(t, s, Grant{Mode: Watch})
		time.Sleep(Lifetime - 1)
		if _, _, err := s.Redeem(last.Secret, anybody); err != nil {
			t.Errorf("within its time: %v", err)
		}
	})
}

func TestSEC06NotBurnedByAnother(t *testing.T) {
	s := NewStore()
	m := mint(t, s, Grant{Mode: Watch})
	later := errors.New("not now")
	if _, _, err := s.Redeem(m.Secret, func(Grant) error { return later }); err != later {
		t.Fatal(err)
	}
	if _, _, err := s.Redeem(m.Secret, anybody); err != nil {
		t.Error(err)
	}
}

// X34: 64 open tickets, the oldest watch ticket goes; ten mints a minute and door.
func TestX34Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		var all []Minted
		for i := range MaxOpen + 1 {
			mode := Control
			if i == 1 {
				mode = Watch
			}
			m, err := s.Mint(fmt.Sprint(i/maxMints), Grant{Mode: mode})
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			all = append(all, m)
		}
		if _, err := s.Mint("x", Grant{Mode: Watch}); !errors.Is(err, ErrBusy) {
			t.Errorf("no watch ticket is left to go: %v", err)
		}
		for i, m := range all {
			if _, _, err := s.Redeem(m.Secret, anybody); (err == nil) == (i == 1) {
				t.Errorf("ticket %d: %v", i, err)
			}
		}
		for range maxMints {
			mint(t, s, Grant{Mode: Watch})
		}
		if _, err := s.Mint("operator", Grant{Mode: Watch}); !errors.Is(err, ErrBusy) {
			t.Errorf("eleven a minute: %v", err)
		}
		if _, err := s.Mint("another", Grant{Mode: Watch}); err != nil {
			t.Errorf("another door: %v", err)
		}
		time.Sleep(minute)
		mint(t, s, Grant{Mode: Watch})
	})
}

// X34: five failures a minute are free, each further one waits a second.
func TestX34Penalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		for i := range 100 {
			s.Redeem("no", anybody)
			if wait := s.Penalty(); (wait == time.Second) != (i >= 5) || i < 5 && wait != 0 {
				t.Fatalf("after %d: %v", i+1, wait)
			}
		}
		if len(s.failures) > maxFailures+1 {
			t.Errorf("remembers %d failures", len(s.failures))
		}
		time.Sleep(minute)
		if s.Penalty() != 0 {
			t.Error("still waiting")
		}
	})
}

// A renewal is good once, while its stream lives and a minute longer.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		grant := Grant{Mode: Control, Viewer: "v"}
		first := s.Renew("id", grant)
		time.Sleep(time.Hour)
		if id, got, err := s.Redeem(first.Secret, anybody); err != nil || got != grant || id != "id" {
			t.Fatalf("%v %v %v", id, got, err)
		}
		first.Ended() // long used
		if _, _, err := s.Redeem(first.Secret, anybody); err != ErrRefused {
			t.Error("used twice")
		}
		second := s.Renew("id", grant)
		second.Ended()
		later := errors.New("not now")
		for range 5 { // whoever is kept out may try again
			time.Sleep(RenewalTime - 1)
			if _, _, err := s.Redeem(second.Secret, func(Grant) error { return later }); err != later {
				t.Fatal(err)
			}
		}
		time.Sleep(RenewalTime)
		if _, _, err := s.Redeem(second.Secret, anybody); err != ErrRefused {
			t.Error("used late")
		}
		third, fourth := s.Renew("id", grant), s.Renew("other", grant)
		third.Drop()
		s.Revoke("other")
		for _, r := range []Renewal{third, fourth} {
			if _, _, err := s.Redeem(r.Secret, anybody); err != ErrRefused {
				t.Error("used after its end")
			}
		}
		if len(s.open) != 0 {
			t.Errorf("%d left", len(s.open))
		}
	})
}

// MEM-10: a ticket ends by the stricter of both clocks. A wall clock that is set back
// gives it no longer life, and one that went on while the machine was suspended ends it.
func TestMEM10BothClocks(t *testing.T) {
	s := NewStore()
	mint(t, s, Grant{Mode: Watch})
	e, now := s.open[0], time.Now()
	for name, tc := range map[string]struct {
		now  time.Time
		want bool
	}{
		"soon":                      {now, false},
		"later":                     {now.Add(Lifetime + time.Second), true},
		"later, clock set back":     {wallclock.Jumped(now.Add(Lifetime+time.Second), -time.Hour), true},
		"soon, clock set back":      {wallclock.Jumped(now, -time.Hour), false},
		"soon, after a suspension":  {wallclock.Jumped(now, 8*time.Hour), true},
		"soon, clock a second fast": {wallclock.Jumped(now, time.Second), false},
	} {
		if got := e.expired(tc.now); got != tc.want {
			t.Errorf("%s: expired %v, want %v", name, got, tc.want)
		}
	}
}
