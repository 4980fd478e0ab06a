// SPDX-License-Identifier: MPL-2.0

// Package ticket holds the tickets of one screen: what opens one viewer's stream,
// once and soon (rule R1).
package ticket

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
)

// Limits of one screen (rule R1, threats.md X34).
const (
	Lifetime    = 30 * time.Second // of a ticket that nobody uses
	RenewalTime = 60 * time.Second // of a renewal, from the end of its stream
	MaxOpen     = 64
	maxMints    = 10 // per door and minute
	maxFailures = 5  // a minute; every further one waits
	failureWait = time.Second
	minute      = time.Minute
)

// Mode is what a viewer may do with its stream.
type Mode string

// The modes.
const (
	Watch   Mode = "watch"
	Control Mode = "control" // it may take the screen and, while it holds, send input
)

// Valid reports whether m is one of the modes.
func (m Mode) Valid() bool { return m == Watch || m == Control }

// Secret is a ticket itself: 32 random bytes in URL-safe base64. It prints as
// [redacted]; only a conversion to string shows it.
type Secret string

// Format hides the secret from every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, "[redacted]") }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// ID names a ticket for its revocation. It opens nothing.
type ID string

// Grant is what a ticket gives, written down on this side: the bearer can claim
// nothing (SEC-03).
type Grant struct {
	Mode   Mode
	Viewer lease.ViewerID
}

// Minted is a new ticket. Its secret is shown this once.
type Minted struct {
	ID      ID
	Secret  Secret
	Grant   Grant
	Expires time.Time
}

// ErrRefused is every refusal of a ticket: unknown, used, expired, revoked or of
// another screen. Which one it was is nobody's to know.
var ErrRefused = errors.New("ticket refused")

// ErrBusy says that no more tickets are minted for now.
var ErrBusy = errors.New("too many tickets")

// entry is a ticket that is open.
type entry struct {
	id      ID
	hash    [sha256.Size]byte
	grant   Grant
	expires time.Time // zero: not before its stream ends
	renewal bool
}

// Store holds the open tickets of one screen instance; those of another are in
// another store, so none opens this one. It is safe for concurrent use.
type Store struct {
	mu       sync.Mutex             // guards all below
	open     []entry                // oldest first
	mints    map[string][]time.Time // the last minute's, by door
	failures []time.Time            // the last minute's
}

// NewStore has no tickets.
func NewStore() *Store { return &Store{mints: map[string][]time.Time{}} }

// Mint makes a ticket for whoever came through the named door. A grant without a
// viewer gets an id that nobody can guess. The error is ErrBusy, or says what is
// wrong with the grant.
func (s *Store) Mint(door string, grant Grant) (Minted, error) {
	if grant.Viewer == "" {
		grant.Viewer = lease.ViewerID(rand.Text())
	}
	switch {
	case !grant.Mode.Valid():
		return Minted{}, fmt.Errorf("mint ticket: mode %q is not one of watch, control", string(grant.Mode))
	case !grant.Viewer.Valid():
		return Minted{}, fmt.Errorf("mint ticket: %w", lease.ErrViewerID)
	}
	secret, hash := newSecret()
	now := time.Now()
	e := entry{id: newID(), hash: hash, grant: grant, expires: now.Add(Lifetime)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if len(s.mints[door]) >= maxMints {
		return Minted{}, fmt.Errorf("mint ticket: %w: %d in the last minute", ErrBusy, maxMints)
	}
	if !s.makeRoom() {
		return Minted{}, fmt.Errorf("mint ticket: %w: %d are open", ErrBusy, MaxOpen)
	}
	s.mints[door] = append(s.mints[door], now)
	s.open = append(s.open, e)
	return Minted{ID: e.id, Secret: secret, Grant: grant, Expires: e.expires}, nil
}

// makeRoom drops the oldest watch ticket where the store is full. It needs mu.
func (s *Store) makeRoom() bool {
	open := 0
	oldest := -1
	for i, e := range s.open {
		if e.renewal {
			continue // bounded by the viewers there are
		}
		open++
		if oldest < 0 && e.grant.Mode == Watch {
			oldest = i
		}
	}
	if open < MaxOpen {
		return true
	}
	if oldest < 0 {
		return false
	}
	s.open = slices.Delete(s.open, oldest, oldest+1)
	return true
}

// Redeem uses a ticket up. When admit refuses the grant, its error is returned and
// the ticket stays as it was, a renewal with its time begun anew. Any other refusal
// is ErrRefused; the caller should wait as Penalty says before it answers.
func (s *Store) Redeem(secret Secret, admit func(Grant) error) (ID, Grant, error) {
	hash := sha256.Sum256([]byte(secret))
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	// All are compared, so that the time tells nothing.
	at := -1
	for i := range s.open {
		if subtle.ConstantTimeCompare(s.open[i].hash[:], hash[:]) == 1 {
			at = i
		}
	}
	if at < 0 {
		if len(s.failures) <= maxFailures {
			s.failures = append(s.failures, now)
		}
		return "", Grant{}, ErrRefused
	}
	e := s.open[at]
	if err := admit(e.grant); err != nil {
		if e.renewal && !e.expires.IsZero() {
			s.open[at].expires = now.Add(RenewalTime)
		}
		return "", Grant{}, err
	}
	s.open = slices.Delete(s.open, at, at+1)
	return e.id, e.grant, nil
}

// Penalty is how long the answer to a refused ticket waits: not at all for the
// first five of a minute.
func (s *Store) Penalty() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(time.Now())
	if len(s.failures) > maxFailures {
		return failureWait
	}
	return 0
}

// Revoke ends a ticket and its renewals. It reports whether one was open.
func (s *Store) Revoke(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(time.Now())
	before := len(s.open)
	s.open = slices.DeleteFunc(s.open, func(e entry) bool { return e.id == id })
	return len(s.open) < before
}

// expired goes by the stricter of both clocks: the monotonic one, which nobody sets, and
// the wall clock, which counts the time that a machine was suspended (MEM-10).
func (e entry) expired(now time.Time) bool {
	return !e.expires.IsZero() && (!now.Before(e.expires) || !now.Round(0).Before(e.expires.Round(0)))
}

// RevokeAll ends every ticket and renewal, and says which there were.
func (s *Store) RevokeAll() []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(time.Now())
	var ended []ID
	for _, e := range s.open {
		ended = append(ended, e.id)
	}
	s.open = nil
	return ended
}

// forget drops what time has ended. It needs mu.
func (s *Store) forget(now time.Time) {
	s.open = slices.DeleteFunc(s.open, func(e entry) bool { return e.expired(now) })
	recent := func(times []time.Time) []time.Time {
		return slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= minute })
	}
	s.failures = recent(s.failures)
	for door, times := range s.mints {
		if s.mints[door] = recent(times); len(s.mints[door]) == 0 {
			delete(s.mints, door)
		}
	}
}

// Renewal is a ticket for a viewer that is already there, so that it comes back
// after its connection broke: good once, from now until some time after the end of
// the stream it was made for.
type Renewal struct {
	Secret Secret

	store *Store
	hash  [sha256.Size]byte
}

// Renew makes a renewal for a stream that was opened by the ticket id.
func (s *Store) Renew(id ID, grant Grant) Renewal {
	secret, hash := newSecret()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, entry{id: id, hash: hash, grant: grant, renewal: true})
	return Renewal{Secret: secret, store: s, hash: hash}
}

// Ended starts the renewal's time: its stream is over.
func (r Renewal) Ended() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for i := range r.store.open {
		if r.store.open[i].hash == r.hash {
			r.store.open[i].expires = time.Now().Add(RenewalTime)
		}
	}
}

// Drop ends the renewal: its viewer left on purpose.
func (r Renewal) Drop() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.open = slices.DeleteFunc(r.store.open, func(e entry) bool { return e.hash == r.hash })
}

func newSecret() (Secret, [sha256.Size]byte) {
	var random [32]byte
	rand.Read(random[:]) // never fails
	secret := Secret(base64.RawURLEncoding.EncodeToString(random[:]))
	return secret, sha256.Sum256([]byte(secret))
}

func newID() ID {
	var random [6]byte
	rand.Read(random[:])
	return ID(hex.EncodeToString(random[:]))
}
