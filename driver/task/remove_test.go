// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/host"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/screen"
)

// What a profile has on a node goes when it is asked for and its screen is not there; a
// link in it leads to nothing, and other profiles keep what they have.
func TestProfileRemoved(t *testing.T) {
	n := newNode(t)
	gone, stays := screen.ID{Namespace: "default", Profile: "gone"}, screen.ID{Namespace: "default", Profile: "stays"}
	below := func(id screen.ID) []string {
		t.Helper()
		var found []string
		for _, pattern := range []string{"state/data/default/" + string(id.Profile), "state/control/default/" + string(id.Profile), "run/" + id.Hash(), "state/profiles/" + id.Hash() + ".json"} {
			if _, err := os.Lstat(filepath.Join(n.dir, pattern)); err == nil {
				found = append(found, filepath.Join(n.dir, pattern))
			}
		}
		return found
	}
	stop := func(k *task.Task) {
		t.Helper()
		if err := k.Stop(t.Context(), 5*time.Second, 0); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
		if err := k.Destroy(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	other := n.start(n.request("stays"))
	k := n.start(n.request("gone"))
	if _, err := n.RemoveProfile(t.Context(), gone, false); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("with its screen there: %v", err)
	}
	stop(k)
	stop(other)
	outside := filepath.Join(n.dir, "outside")
	if err := os.WriteFile(outside, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(n.dir, "state/data/default/gone")
	if err := os.Symlink(n.dir, filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	had := below(gone)
	looked, err := n.RemoveProfile(t.Context(), gone, true)
	if err != nil || !slices.Equal(looked.Paths, had) || len(had) < 3 || !slices.Equal(below(gone), had) {
		t.Errorf("looked at: %+v %v, there are %v", looked, err, had)
	}
	removed, err := n.RemoveProfile(t.Context(), gone, false)
	if err != nil || !slices.Equal(removed.Paths, had) || len(below(gone)) > 0 {
		t.Errorf("removed: %+v %v, left %v", removed, err, below(gone))
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "somebody's" {
		t.Errorf("what a link leads to: %q %v", text, err)
	}
	if left := below(stays); len(left) < 3 {
		t.Errorf("of another profile there is %v", left)
	}
	if again, err := n.RemoveProfile(t.Context(), gone, false); err != nil || len(again.Paths) > 0 {
		t.Errorf("again: %+v %v", again, err)
	}
}

// keeper is the host with homes on an engine elsewhere.
type keeper struct {
	host.Boundary
	homes []string
}

func (k *keeper) Homes(context.Context, screen.ID) ([]string, error) { return k.homes, nil }
func (k *keeper) RemoveHomes(context.Context, screen.ID) error {
	k.homes = nil
	return nil
}

// A home that an engine elsewhere has goes with the profile.
func TestProfileRemovedElsewhere(t *testing.T) {
	n := newNode(t)
	k := &keeper{homes: []string{"botscreen-home-x"}}
	m := task.New(n.settings, []isolation.Boundary{k}, nil, hclog.NewNullLogger())
	id := screen.ID{Namespace: "default", Profile: "far"}
	looked, err := m.RemoveProfile(t.Context(), id, true)
	if err != nil || !slices.Equal(looked.Volumes, []string{"botscreen-home-x"}) || k.homes == nil {
		t.Errorf("looked at: %+v %v", looked, err)
	}
	if removed, err := m.RemoveProfile(t.Context(), id, false); err != nil || len(removed.Volumes) != 1 || k.homes != nil {
		t.Errorf("removed: %+v %v", removed, err)
	}
}
