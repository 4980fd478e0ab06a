// SPDX-License-Identifier: MPL-2.0

package task

import (
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/shared/screen"
)

// X26: the profile's record never goes back to a lower epoch, whoever writes it, and
// never to one that none can follow.
func TestX26ProfileKeepsTheEpoch(t *testing.T) {
	m := New(Settings{StateDir: t.TempDir(), FirstUID: 300_000, LastUID: 300_100}, nil, nil, hclog.NewNullLogger())
	id := screen.ID{Namespace: "default", Profile: "bot"}
	floor := func(want uint64) {
		t.Helper()
		if got, err := m.leaseFloor(id); err != nil || got != want {
			t.Fatalf("floor %d, %v; want %d", got, err, want)
		}
	}
	floor(0)
	started, err := m.loadProfile(id) // a start holds it meanwhile
	if err != nil {
		t.Fatal(err)
	}
	floor(0)
	var all sync.WaitGroup
	for epoch := range uint64(40) {
		all.Go(func() { m.noteEpoch(id, epoch) })
	}
	all.Wait()
	floor(39)
	m.noteEpoch(id, 12)
	m.noteEpoch(id, maxEpoch)
	m.noteEpoch(id, 1<<64-1)
	floor(39)
	started.LastDisplay = 23
	if err := m.saveProfile(started); err != nil {
		t.Fatal(err)
	}
	floor(39)
	if p, err := m.loadProfile(id); err != nil || p.LastDisplay != 23 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := m.profiles.save(id.Hash(), "no record"); err != nil {
		t.Fatal(err)
	}
	if got, err := m.leaseFloor(id); err == nil {
		t.Errorf("an unreadable record gives %d", got)
	}
}
