// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
)

const (
	// reapEvery is how often lost screens are looked for.
	reapEvery = time.Minute
	// reapGrace is how long an allocation's directory must be gone: an agent that has
	// just started has not asked for its tasks yet.
	reapGrace = 5 * time.Minute
	// sweepLimit bounds what an engine that hangs can hold up.
	sweepLimit = 30 * time.Second
	// imageGrace is how long an image that was fetched stays although no profile is decided
	// for it and its reference means another one.
	imageGrace = 7 * 24 * time.Hour
	// resultLife is how long the end of a task is remembered.
	resultLife = 7 * 24 * time.Hour
)

// InUse reports whether any task is known or starting.
func (m *Manager) InUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tasks)+len(m.busy) > 0
}

// Idle reports whether this process may end without a loss: no screen runs or starts here, and
// none is recorded that may have to be ended. How tasks ended is on disk.
func (m *Manager) Idle() bool {
	m.mu.Lock()
	busy := len(m.busy) > 0
	m.mu.Unlock()
	if busy {
		return false
	}
	names, err := m.runs.names()
	return err == nil && len(names) == 0
}

// ReapLost ends screens of allocations that Nomad has forgotten: their directory is
// gone and no task of this driver has them. It runs until ctx ends.
func (m *Manager) ReapLost(ctx context.Context) {
	missing := map[string]time.Time{}
	began := time.Now()
	ticker := time.NewTicker(reapEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			m.reapOnce(ctx, missing, now)
			if now.Sub(began) >= reapGrace {
				m.sweep(ctx)
			}
		}
	}
}

// reapOnce remembers in missing since when an allocation's directory is gone.
func (m *Manager) reapOnce(ctx context.Context, missing map[string]time.Time, now time.Time) {
	names, err := m.runs.names()
	if err != nil {
		m.log.Error("look for lost screens", "error", err)
		return
	}
	for _, name := range names {
		var r runRecord
		if m.runs.load(name, &r) != nil || !m.isLost(name, r) {
			delete(missing, name)
			continue
		}
		since, seen := missing[name]
		if !seen {
			missing[name] = now
			continue
		}
		if now.Sub(since) < reapGrace {
			continue
		}
		m.reapRun(ctx, name, r)
		delete(missing, name)
	}
	m.forgetResults(now)
}

func (m *Manager) isLost(hash string, r runRecord) bool {
	m.mu.Lock()
	_, busy := m.busy[hash]
	m.mu.Unlock()
	if busy || r.AllocDir == "" {
		return false
	}
	_, err := os.Stat(r.AllocDir)
	return errors.Is(err, fs.ErrNotExist)
}

func (m *Manager) reapRun(ctx context.Context, hash string, r runRecord) {
	if m.prepare() != nil || m.reserve(hash, claimOf(r)) != nil {
		return
	}
	defer m.release(r.TaskID, hash)
	turn, err := m.lockScreen(ctx, hash)
	if err != nil {
		m.log.Error("end a lost screen", "profile", r.Profile, "error", err)
		return
	}
	defer turn.Release()
	var current runRecord
	if m.runs.load(hash, &current) != nil || current.Instance != r.Instance {
		return // another driver process has ended or replaced it
	}
	m.log.Warn("ending a screen whose allocation is gone", "profile", r.Profile, "alloc", r.AllocID)
	if err := m.removeRun(ctx, r); err != nil {
		m.log.Error("end a lost screen", "profile", r.Profile, "error", err)
	}
}

// sweep removes sandboxes that no run's record knows, and images that no run's and no
// profile's does. A record that cannot be read may be any sandbox's: then nothing is
// removed.
func (m *Manager) sweep(ctx context.Context) {
	names, err := m.runs.names()
	if err != nil {
		m.log.Error("look for leftover sandboxes", "error", err)
		return
	}
	known, images := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		var r runRecord
		if err := m.runs.load(name, &r); errors.Is(err, fs.ErrNotExist) {
			continue // its run has ended meanwhile
		} else if err != nil {
			m.log.Error("look for leftover sandboxes", "record", name, "error", err)
			return
		}
		known[r.Instance], images[r.Image] = true, true
	}
	m.sweepImages(ctx, images)
	for kind, boundary := range m.boundaries {
		sweeper, ok := boundary.(isolation.Sweeper)
		if !ok {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sweepLimit)
		removed, err := sweeper.Sweep(limited, func(instance string) bool { return known[instance] }, reapGrace)
		cancel()
		if len(removed) > 0 {
			m.log.Warn("removed sandboxes that no task has", "isolation", kind, "names", removed)
		}
		if err != nil {
			m.log.Debug("look for leftover sandboxes", "isolation", kind, "error", err) // most nodes have no engine
		}
	}
}

// sweepImages removes images that were fetched and that nobody is decided for; running are
// those that screens run.
func (m *Manager) sweepImages(ctx context.Context, running map[string]bool) {
	names, err := m.profiles.names()
	if err != nil {
		m.log.Error("look for old images", "error", err)
		return
	}
	for _, name := range names {
		var p profileRecord
		if err := m.profiles.load(name, &p); errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		} else if err != nil {
			m.log.Error("look for old images", "record", name, "error", err)
			return
		}
		if p.Image != nil {
			running[p.Image.Image] = true
		}
	}
	for kind, boundary := range m.boundaries {
		sweeper, ok := boundary.(isolation.ImageSweeper)
		if !ok {
			continue
		}
		removed, err := sweeper.SweepImages(ctx, func(reference string) bool { return running[reference] }, imageGrace)
		if len(removed) > 0 {
			m.log.Info("removed images that no profile runs", "isolation", kind, "names", removed)
		}
		if err != nil {
			m.log.Error("look for old images", "isolation", kind, "error", err)
		}
	}
}

func (m *Manager) forgetResults(now time.Time) {
	names, err := m.results.names()
	if err != nil {
		return
	}
	for _, name := range names {
		var r endRecord
		if m.results.load(name, &r) == nil && now.Sub(r.Exit.At) > resultLife {
			_ = m.results.remove(name)
		}
	}
}
