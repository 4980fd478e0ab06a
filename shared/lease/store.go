// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Origin is what is known of a screen beside its lease's files.
type Origin struct {
	// Fresh says that no screen record and no driver state of the profile exist:
	// only then does no lease mean that the agent holds (rules L2 and X26).
	Fresh bool
	// Floor is the highest epoch that the screen record and the driver's state have
	// noted; the greatest of all counts.
	Floor Epoch
}

// Store keeps a lease in a control directory, for any number of processes. What
// cannot be read, or is older than something that was seen, is a human's (rule L2).
type Store struct {
	dir *os.Root

	mu     sync.Mutex // guards origin
	origin Origin
}

// NewStore keeps its files in dir, which only the supervisor's uid can enter and
// which stays open as long as the store is used.
func NewStore(dir *os.Root, origin Origin) *Store {
	return &Store{dir: dir, origin: origin}
}

// Read returns the lease. It never fails and writes nothing: what cannot be read
// is a human's, with the reason.
func (s *Store) Read(now time.Time) Lease {
	unlock, err := lock(s.dir, unix.LOCK_SH)
	if err != nil {
		return unknown("the lease cannot be locked: "+err.Error(), s.floor(0).Floor, now)
	}
	defer unlock()
	l, _ := s.current(now)
	return l
}

// Load is a supervisor's first look. It writes down what was not certain, so that
// it has an epoch of its own, and counts a human that holds as away: their stream
// ended with the supervisor before.
func (s *Store) Load(now time.Time) (Lease, error) {
	return s.Update(now, func(l Lease) (Lease, error) {
		if l.Held() && l.Away.IsZero() {
			l.Away = stamp(now)
		}
		return l, nil
	})
}

// StoreError says that a lease could not be locked or written.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "store lease: " + e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// Update replaces the lease by what change makes of it, with everybody else locked
// out. When that changes nothing, nothing is written. The lease that is returned
// holds, also beside an error, which is change's or a *StoreError.
func (s *Store) Update(now time.Time, change func(Lease) (Lease, error)) (Lease, error) {
	l, _, err := s.update(now, func(l Lease, _ bool) (Lease, error) { return change(l) })
	return l, err
}

// update tells change, and the caller, whether the lease is certain.
func (s *Store) update(now time.Time, change func(Lease, bool) (Lease, error)) (l Lease, certain bool, err error) {
	unlock, err := lock(s.dir, unix.LOCK_EX)
	if err != nil {
		return s.Read(now), false, &StoreError{err}
	}
	defer unlock()
	was, from := s.current(now)
	if from == lost {
		was.Epoch++ // a change of hands that nobody saw
	}
	l, err = change(was, from != lost)
	switch {
	case err != nil:
		return was, from != lost, err
	case from == stored && l == was:
		return l, true, nil
	case l.Epoch > MaxEpoch:
		return was, from != lost, ErrExhausted
	}
	if err := s.save(l); err != nil {
		now, from := s.current(now) // the first of two files may have been written
		return now, from != lost, &StoreError{err}
	}
	s.floor(l.Epoch)
	return l, true, nil
}

// save writes the lease before the mark: if it ends in between, the mark is only
// late, and the lease's own epoch counts.
func (s *Store) save(l Lease) error {
	text, err := encode(l)
	if err != nil {
		return err
	}
	return write(s.dir, file{leaseFile, text}, file{markFile, encodeMark(l.Epoch)})
}

// state says where a lease that was read comes from.
type state int

const (
	stored state = iota // the file
	fresh               // there is none, and nothing else of the screen
	lost                // the file is missing, broken or old
)

// current reads both files. A lost lease is a human's at the highest epoch that may
// have been used.
func (s *Store) current(now time.Time) (Lease, state) {
	mark, markErr := s.mark()
	origin := s.floor(mark)
	text, err := read(s.dir, leaseFile)
	if errors.Is(err, fs.ErrNotExist) && markErr == nil && origin.Fresh {
		return First(now), fresh
	}
	var l Lease
	if err == nil {
		l, err = decode(text)
	}
	if err == nil && l.Epoch < origin.Floor {
		err = fmt.Errorf("is old: it has epoch %d, but %d was seen", l.Epoch, origin.Floor)
	}
	if err == nil {
		s.floor(l.Epoch)
		return l, stored
	}
	// It may have been one ahead of its mark. Without any mark the time is above all
	// that can have been used.
	used := origin.Floor + 1
	if origin.Floor == 0 || markErr != nil {
		used = max(used, epochAt(now))
	}
	return unknown(fmt.Sprintf("%s: %v", leaseFile, err), used, now), lost
}

// mark reads the high-water mark; a missing one is 0 and no error.
func (s *Store) mark() (Epoch, error) {
	text, err := read(s.dir, markFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return decodeMark(text)
}

// floor raises the highest epoch seen. Once there was one, the screen has history.
func (s *Store) floor(seen Epoch) Origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origin.Floor = max(s.origin.Floor, seen)
	if s.origin.Floor > 0 {
		s.origin.Fresh = false
	}
	return s.origin
}
