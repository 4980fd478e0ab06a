// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// The session's words for failures the driver treats in a way of its own; they are
// dialhome.KindDisplayTaken and KindMissing.
const (
	causeDisplayTaken = "display_taken"
	causeMissing      = "missing_programs"
)

// termGrace is how long a supervisor may take to go.
const termGrace = 2 * time.Second

func afterGrace() <-chan time.Time { return time.After(termGrace) }

// chooseIsolation is the node's policy. `auto` takes the first of the job's order, or of the
// operator's where the job has none, that can be had now; the raw host only where both the
// operator and the order say so.
func (m *Manager) chooseIsolation(ctx context.Context, wanted screen.Isolation, order []screen.Isolation) (screen.Isolation, error) {
	if wanted != screen.Auto {
		return wanted, m.refusal(ctx, wanted)
	}
	whose := "the job"
	if len(order) == 0 {
		whose, order = "this node", m.settings.Order
	}
	var reasons []string
	passing := false
	for _, kind := range order {
		err := m.refusal(ctx, kind)
		if err == nil {
			return kind, nil
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			reasons = append(reasons, refused.Reason)
			passing = passing || refused.Passing
		}
	}
	return "", &RefusedError{Passing: passing, Reason: fmt.Sprintf("no isolation of %s's isolation_order (%s) can be had: %s",
		whose, joinKinds(order), strings.Join(reasons, "; "))}
}

func (m *Manager) refusal(ctx context.Context, kind screen.Isolation) error {
	if kind == screen.Host && !m.settings.AllowHost {
		return &RefusedError{Reason: "this node does not allow raw host screens. Set allow_unsandboxed_host = true in the plugin's config on this node, or place the screen on a node with docker or apptainer"}
	}
	boundary, ok := m.boundaries[kind]
	if !ok {
		return &RefusedError{Reason: fmt.Sprintf("%s isolation is not available on this node. Choose one of those in its attribute driver.botscreen.isolations, or allow the raw host with allow_unsandboxed_host = true and isolation = \"host\"", kind)}
	}
	if checker, ok := boundary.(isolation.Checker); ok {
		if reason := checker.Refusal(ctx); reason != "" {
			return &RefusedError{Passing: true, Reason: fmt.Sprintf("%s isolation cannot be used on this node now: %s. Place the screen on another node, or allow the raw host with allow_unsandboxed_host = true and isolation = \"host\"", kind, strings.TrimSuffix(reason, "."))}
		}
	}
	return nil
}

func joinKinds(kinds []screen.Isolation) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// boundExec is what the job asks for, never more than the operator allows (X19).
func boundExec(job, most screen.ExecPolicy) screen.ExecPolicy {
	ranks := []screen.Role{screen.RoleViewer, screen.RoleControl, screen.RoleOperator}
	if slices.Index(ranks, job.Role) > slices.Index(ranks, most.Role) {
		job.Role = most.Role
	}
	job.Shell = job.Shell && most.Shell
	return job
}

// loadProfile finds the profile's record, or gives it the lowest free pair of uids. The
// pair stays the profile's for as long as the record exists, so a home never needs to
// change its owner.
func (m *Manager) loadProfile(id screen.ID) (profileRecord, error) {
	var p profileRecord
	err := m.profiles.load(id.Hash(), &p)
	if err == nil {
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("profile %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	free, err := m.freeSlot()
	if err != nil {
		return p, fmt.Errorf("profile %s: %w", id, err)
	}
	p = profileRecord{V: recordVersion, Namespace: id.Namespace, Profile: id.Profile, Slot: free}
	return p, m.profiles.save(id.Hash(), p)
}

// freeSlot needs m.mu.
func (m *Manager) freeSlot() (uint32, error) {
	names, err := m.profiles.names()
	if err != nil {
		return 0, err
	}
	used := map[uint32]bool{}
	for _, name := range names {
		var p profileRecord
		if err := m.profiles.load(name, &p); err != nil {
			return 0, fmt.Errorf("%w; repair or remove it, its uids are not known", err)
		}
		used[p.Slot] = true
	}
	for slot := uint32(0); ; slot++ {
		first, second := m.settings.uidsOf(slot)
		if second > m.settings.LastUID || second < first {
			return 0, fmt.Errorf("all uids of uid_range %d-%d are in use; widen it", m.settings.FirstUID, m.settings.LastUID)
		}
		if !used[slot] && !isLogin(first) && !isLogin(second) {
			return slot, nil
		}
	}
}

// uidsOf are the uids of a slot: the supervisor's and the session's.
func (s Settings) uidsOf(slot uint32) (supervisor, session uint32) {
	return s.FirstUID + 2*slot, s.FirstUID + 2*slot + 1
}

// isLogin reports whether somebody of this node has the uid.
func isLogin(uid uint32) bool {
	_, err := user.LookupId(fmt.Sprint(uid))
	return err == nil
}
