// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// warmUp is how many rounds go by before what a process holds is measured.
	warmUp = 5
	// mayGrow is by how much a process' own memory may grow besides half of what it was, in
	// kilobytes: collectors differ between two looks.
	mayGrow = 8 << 10
)

// TestSoak uses two screens for as long as SOAK says, in every way there is, and checks that
// no process of ours holds more files, threads or memory,
// but for what collectors leave, at the end than after the first
// rounds. `make soak` runs it for an hour; without SOAK it is skipped.
func TestSoak(t *testing.T) {
	needDesktop(t)
	text := os.Getenv("SOAK")
	if text == "" {
		t.Skip("SOAK says how long; see `make soak`")
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	a := newEmbedded(t)
	a.must(t, "run", a.job(t, "sleeps"))
	a.must(t, "run", a.job(t, "freezes", `idle_action = "freeze"`))
	rounds := 0
	var before map[string]holds
	for end := time.Now().Add(limit); time.Now().Before(end) || rounds <= warmUp+1; rounds++ {
		if rounds == warmUp {
			before = a.held()
		}
		for _, name := range []string{"sleeps", "freezes"} {
			soakRound(t, a, name)
		}
		if t.Failed() {
			t.Fatalf("in round %d", rounds+1)
		}
	}
	var after map[string]holds
	a.eventually("as few open files as after the first rounds", func() bool {
		after = a.held()
		for who, was := range before {
			if after[who].files > was.files {
				return false
			}
		}
		return true
	})
	for who, was := range before {
		now, ok := after[who]
		if !ok {
			t.Errorf("%s is gone", who)
			continue
		}
		t.Logf("%s: %s, after %d rounds %s", who, was, rounds-warmUp, now)
		if now.threads > was.threads+8 || now.memoryKB > was.memoryKB*3/2+mayGrow {
			t.Errorf("%s grew from %s to %s", who, was, now)
		}
	}
	for _, name := range []string{"sleeps", "freezes"} {
		a.must(t, "stop", name)
	}
	gone(t, a)
}

// soakRound uses a screen as agents, people and operators do.
func soakRound(t *testing.T, a *agent, name string) {
	t.Helper()
	picture := filepath.Join(t.TempDir(), "p.png")
	if r := a.botscreen(t, "exec", name, "true"); r.code != 0 {
		t.Fatalf("%s\n%s", r, a.botscreen(t, "status", name)) // the story is in the events
	}
	a.must(t, "screenshot", "-o", picture, name)
	a.must(t, "take", name)
	if r := a.botscreen(t, "screenshot", "-o", picture, name); r.code == 0 {
		t.Errorf("a picture under a person: %s", r)
	}
	a.must(t, "release", name)
	a.must(t, "sleep", name)
	a.must(t, "wake", name)
	a.must(t, "status", name)
	if err := os.Remove(picture); err != nil {
		t.Error(err)
	}
}

// holds is what a process has of the node.
type holds struct {
	files, threads int
	memoryKB       int // its own: anonymous pages
}

func (h holds) String() string {
	return fmt.Sprintf("%d files, %d threads, %d kB", h.files, h.threads, h.memoryKB)
}

// held looks at the agent's long-lived processes of ours.
func (a *agent) held() map[string]holds {
	all := map[string]holds{"agent": holdsOf(a.cmd.Process.Pid)}
	for _, p := range plugins(a) {
		all["plugin"] = holdsOf(p.pid)
	}
	for _, p := range supervisors(a) {
		all[fmt.Sprintf("supervisor %d", p.pid)] = holdsOf(p.pid)
	}
	for hash, s := range screens(a) {
		all["session of "+hash] = holdsOf(s.session.pid)
	}
	return all
}

func holdsOf(pid int) holds {
	var h holds
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	entries, _ := os.ReadDir(filepath.Join(dir, "fd"))
	h.files = len(entries)
	text, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			switch fields[0] {
			case "Threads:":
				h.threads, _ = strconv.Atoi(fields[1])
			case "RssAnon:":
				h.memoryKB, _ = strconv.Atoi(fields[1])
			}
		}
	}
	return h
}
