// SPDX-License-Identifier: MPL-2.0

// Package task runs one screen for each task Nomad starts: it admits, launches the
// supervisor and the session, follows them to their end, finds them again after the
// driver was restarted, and cleans up. It never imports the supervisor, it executes
// it: a screen outlives this process.
package task

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/slot"
	"github.com/botscreen/botscreen/shared/screen"
)

// ID names one run of a task as Nomad does; it changes with every restart and holds
// slashes.
type ID string

// ErrNotFound says that no task of this id is known.
var ErrNotFound = errors.New("no task of this id is known")

// Manager owns the tasks of one driver process.
type Manager struct {
	log        hclog.Logger
	settings   Settings
	boundaries map[screen.Isolation]isolation.Boundary
	nodeEnv    []string // the driver's own environment
	events     *Events

	runs, profiles, results recordDir

	setup    sync.Once
	setupErr error
	node     *slot.Dir
	binary   string
	claims   *display.Claims
	ledger   *memory.Ledger
	gate     *memory.Gate

	// profileTurn is held across the change of a profile's record, which a start and a
	// task's events make.
	profileTurn sync.Mutex

	mu    sync.Mutex // guards all below
	tasks map[ID]*Task
	busy  map[string]claim // screens by hash
}

// New makes a manager; it has no effect outside this process.
func New(settings Settings, boundaries []isolation.Boundary, nodeEnv []string, log hclog.Logger) *Manager {
	m := &Manager{
		log: log, settings: settings, nodeEnv: nodeEnv, events: newEvents(),
		boundaries: map[screen.Isolation]isolation.Boundary{},
		runs:       recordDir(filepath.Join(settings.StateDir, "runs")),
		profiles:   recordDir(filepath.Join(settings.StateDir, "profiles")),
		results:    recordDir(filepath.Join(settings.StateDir, "results")),
		tasks:      map[ID]*Task{}, busy: map[string]claim{},
	}
	for _, b := range boundaries {
		m.boundaries[b.Kind()] = b
	}
	return m
}

// Events is the stream of what happens to all tasks.
func (m *Manager) Events() *Events { return m.events }

// prepare makes what the node needs once: it is the first thing with an effect outside
// this process, and comes with the first task (N1a).
func (m *Manager) prepare() error {
	m.setup.Do(func() { m.setupErr = m.prepareOnce() })
	return m.setupErr
}

func (m *Manager) prepareOnce() error {
	if err := errors.Join(ensureDir(m.settings.StateDir, 0o711), ensureDir(m.settings.RunDir, 0o711)); err != nil {
		return fmt.Errorf("prepare node: %w", err)
	}
	node, err := slot.Open(filepath.Join(m.settings.RunDir, "node"))
	if err != nil {
		return fmt.Errorf("prepare node: %w", err)
	}
	binary, err := m.settings.installBinary()
	if err != nil {
		return fmt.Errorf("prepare node: %w", err)
	}
	m.node, m.binary = node, binary
	m.claims = &display.Claims{Node: node, Band: m.settings.Band}
	m.ledger = &memory.Ledger{Node: node, Read: memory.Prober{}.Read}
	m.gate = &memory.Gate{Node: node, Slots: gateSlots()}
	return nil
}

// Get finds a task by its id.
func (m *Manager) Get(id ID) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tasks[id]
	if !ok {
		return nil, ErrNotFound
	}
	return t, nil
}

func (m *Manager) add(t *Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks[t.record.TaskID] = t
	if hash := t.record.id().Hash(); !t.over() && m.busy[hash].id != t.record.TaskID {
		m.busy[hash] = claimOf(t.record)
	}
}

// forget drops a task; its screen is free once the task is over.
func (m *Manager) forget(t *Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tasks, t.record.TaskID)
}
