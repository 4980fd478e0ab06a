// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// L12: a user's viewer id is made once, for its owner alone, and kept.
func TestL12ViewerID(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	if ownHandle() != "" {
		t.Error("there is a handle before the first use")
	}
	var mu sync.Mutex
	ids := map[lease.ViewerID]bool{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			id, err := viewerID()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			ids[id] = true
		})
	}
	all.Wait()
	if len(ids) != 1 {
		t.Fatalf("%d ids of one user", len(ids))
	}
	for id := range ids {
		if len(id) < 43 || !id.Valid() || ownHandle() != id.Handle() {
			t.Errorf("an id of %d characters", len(id))
		}
	}
	path := filepath.Join(state, "botscreen", "viewer")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside it: %v, %v", entries, err)
	}
}

// An id that somebody else can know, or that is none, is not used, and not told.
func TestL12UntrustedViewerID(t *testing.T) {
	const canary = "CANARY-7f3a"
	for name, spoil := range map[string]func(path string) error{
		"readable":  func(path string) error { return os.WriteFile(path, []byte(canary), 0o644) },
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"binary":    func(path string) error { return os.WriteFile(path, []byte(canary+"\x00\x01"), 0o600) },
		"long":      func(path string) error { return os.WriteFile(path, []byte(strings.Repeat(canary, 99)), 0o600) },
		"a link":    func(path string) error { return os.Symlink("/etc/hostname", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			t.Setenv("XDG_STATE_HOME", state)
			path := filepath.Join(state, "botscreen", "viewer")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			id, err := viewerID()
			if id != "" || err == nil || strings.Contains(err.Error(), canary) {
				t.Errorf("%d characters, %v", len(id), err)
			}
		})
	}
}

func TestLeaseSentences(t *testing.T) {
	since := time.Date(2026, 5, 1, 14, 3, 10, 0, time.UTC)
	human := lease.Public{Holder: lease.Human, Viewer: "3f9a00000000", Since: since, Epoch: 41, Reason: screen.Distrust("a captcha")}
	lost := lease.Public{Holder: lease.Human, Since: since, Epoch: 41, Reason: screen.Distrust("lease.json: is no lease")}
	for want, l := range map[string]leaseAnswer{
		"The agent controls desk/g/bot since 2026-05-01 14:03:10 UTC (epoch 7).":                                                                                               {Public: lease.Public{Holder: lease.Agent, Since: since, Epoch: 7}},
		"You control desk/g/bot since 2026-05-01 14:03:10 UTC (epoch 41). Reason: a captcha. Hand it back with `botscreen release`.":                                           {Public: human, You: true},
		"A person (3f9a00000000) controls desk/g/bot since 2026-05-01 14:03:10 UTC (epoch 41). Reason: a captcha.":                                                             {Public: human},
		"Somebody who cannot be told controls desk/g/bot since 2026-05-01 14:03:10 UTC (epoch 41). Reason: lease.json: is no lease. Free it with `botscreen release --force`.": {Public: lost},
	} {
		if got := leaseSentence("desk/g/bot", l); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
