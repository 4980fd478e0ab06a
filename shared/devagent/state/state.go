// SPDX-License-Identifier: MPL-2.0

// Package state keeps what a Nomad server keeps: jobs with their versions,
// evaluations, allocations, deployments and variables. Every change has an index
// that only grows, across restarts too, and wakes whoever waits for one.
//
// A row is one file, replaced by rename, so that an agent killed at any moment
// finds all of a row or its predecessor. Values in the store are never changed in
// place: a writer puts a new one.
package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// Table names a kind of row; blocking queries wait for the index of one.
type Table string

// The tables.
const (
	Jobs        Table = "jobs"
	Evals       Table = "evals"
	Allocs      Table = "allocs"
	Deployments Table = "deployment"
	Variables   Table = "variables"
	Nodes       Table = "nodes"
)

// Job is one job with its earlier versions, newest first.
type Job struct {
	Job      *api.Job
	Versions []*api.Job
	// Submissions holds the source of a version, where the submitter gave one.
	Submissions map[uint64]*api.JobSubmission
}

// indexStep is how many indexes are reserved on disk at once. After a crash the
// index goes on above the reserved ones.
const indexStep = 1 << 12

// Store is safe for concurrent use.
type Store struct {
	dir string
	// turn is held by the one writer, through its disk writes.
	turn chan struct{}

	// mu guards everything below; it is never held across I/O.
	mu      sync.RWMutex
	view    View
	ceiling uint64
	changed chan struct{}
}

// Open reads the store in dir and makes it where it does not exist (0700).
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	seal, err := openSeal(filepath.Join(dir, "keyring"))
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	s := &Store{dir: dir, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	s.view = View{
		jobs:        newTable(dir, Jobs, plainCodec[*Job]{}),
		evals:       newTable(dir, Evals, plainCodec[*api.Evaluation]{}),
		allocs:      newTable(dir, Allocs, plainCodec[*api.Allocation]{}),
		deployments: newTable(dir, Deployments, plainCodec[*api.Deployment]{}),
		variables:   newTable(dir, Variables, sealedCodec[*api.Variable]{seal: seal}),
		nodes:       newTable(dir, Nodes, plainCodec[*api.Node]{}),
	}
	var faults []error
	for _, t := range s.view.tables() {
		faults = append(faults, t.load())
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	return s, s.openIndex()
}

// openIndex starts above everything that was ever handed out.
func (s *Store) openIndex() error {
	text, err := os.ReadFile(s.indexFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open state: %w", err)
	}
	if err == nil {
		if s.view.index, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return fmt.Errorf("open state: read index: %w", err)
		}
	}
	s.view.index = max(s.view.index, 1)
	for _, t := range s.view.tables() {
		t.setIndex(s.view.index)
	}
	s.ceiling = s.view.index
	return nil
}

func (s *Store) indexFile() string { return filepath.Join(s.dir, "index") }

// Read calls f with a view that does not change while f runs. f must not block,
// must not keep the view and must not change what it gets from it.
func (s *Store) Read(f func(v *View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f(&s.view)
}

// Changed is closed by the next change. Take it before reading.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Update runs f and applies all it put and deleted under one new index, or
// nothing when f or the disk fails. f sees the state as before the update and must
// not call Update. Without a put or a delete the index stays.
func (s *Store) Update(f func(tx *Tx) error) (uint64, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	tx := &Tx{View: &s.view, index: s.view.index + 1}
	if err := f(tx); err != nil {
		return s.view.index, err
	}
	if len(tx.changes) == 0 {
		return s.view.index, nil
	}
	if err := s.reserve(tx.index); err != nil {
		return s.view.index, err
	}
	for _, c := range tx.changes {
		if err := c.write(); err != nil {
			return s.view.index, fmt.Errorf("write state: %w", err)
		}
	}
	s.apply(tx)
	return tx.index, nil
}

func (s *Store) apply(tx *Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range tx.changes {
		c.apply(tx.index)
	}
	s.view.index = tx.index
	close(s.changed)
	s.changed = make(chan struct{})
}

// reserve notes on disk that indexes up to the next step may be in use.
func (s *Store) reserve(index uint64) error {
	if index < s.ceiling {
		return nil
	}
	next := index + indexStep
	if err := writeFile(s.indexFile(), []byte(strconv.FormatUint(next, 10)+"\n"), false); err != nil {
		return fmt.Errorf("write state: reserve indexes: %w", err)
	}
	s.ceiling = next
	return nil
}
