// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/slot"
	"github.com/botscreen/botscreen/shared/screen"
)

// ProfileData is what a profile has on a node between its screens.
type ProfileData struct {
	// Paths are the directories and records there are.
	Paths []string
	// Volumes are homes on an engine that is not on this node.
	Volumes []string
}

// RemoveProfile takes away for good what a profile has on this node, home, logins, lease and
// audit, and on an engine elsewhere its home; with look it only says what that would be. A
// profile whose screen is there is refused. A removal that failed half-way can be
// repeated.
func (m *Manager) RemoveProfile(ctx context.Context, id screen.ID, look bool) (ProfileData, error) {
	if err := ensureDir(m.settings.RunDir, 0o711); err != nil {
		return ProfileData{}, err
	}
	node, err := slot.Open(filepath.Join(m.settings.RunDir, "node"))
	if err != nil {
		return ProfileData{}, err
	}
	defer node.Close()
	turn, err := lockScreenIn(ctx, node, id.Hash())
	if err != nil {
		return ProfileData{}, err
	}
	defer turn.Release()
	var r runRecord
	switch err := m.runs.load(id.Hash(), &r); {
	case err == nil:
		return ProfileData{}, fmt.Errorf("the profile %s has a screen here, of job %q: stop it first", id.Profile, r.JobID)
	case !errors.Is(err, fs.ErrNotExist):
		return ProfileData{}, fmt.Errorf("what runs of the profile %s cannot be told: %w", id.Profile, err)
	}
	found, err := m.profileData(ctx, id)
	if err != nil || look {
		return found, err
	}
	return found, m.removeData(ctx, id, found)
}

// profileData looks at the parents alone, which are root's.
func (m *Manager) profileData(ctx context.Context, id screen.ID) (found ProfileData, err error) {
	p := m.settings.places(id)
	for _, path := range []string{p.data, p.control, p.run, m.profiles.path(id.Hash())} {
		if _, err := os.Lstat(path); err == nil {
			found.Paths = append(found.Paths, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	for _, boundary := range m.boundaries {
		if keeper, ok := boundary.(isolation.HomeKeeper); ok {
			volumes, err := keeper.Homes(ctx, id)
			if err != nil {
				return found, err
			}
			found.Volumes = append(found.Volumes, volumes...)
		}
	}
	return found, nil
}

// removeData takes the record away last: it says that there is something left to remove.
func (m *Manager) removeData(ctx context.Context, id screen.ID, found ProfileData) error {
	for _, boundary := range m.boundaries {
		if keeper, ok := boundary.(isolation.HomeKeeper); ok && len(found.Volumes) > 0 {
			if err := keeper.RemoveHomes(ctx, id); err != nil {
				return err
			}
		}
	}
	p := m.settings.places(id)
	for _, path := range []string{p.data, p.control, p.run} {
		// A removal goes through mounts, and what somebody mounted there is not the
		// profile's. It goes through no link.
		if err := isolation.Unbind(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return m.profiles.remove(id.Hash())
}
