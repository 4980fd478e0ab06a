// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/screen"
)

// process is one process of this machine by its words and its parent.
type process struct {
	pid, parent int
	start       string // field 22 of /proc/<pid>/stat: tells a recycled pid apart
	words       []string
}

// processes lists what runs. Zombies are left out, and what has forked and not yet become a
// program of its own: that has its parent's words, and may be in other namespaces already.
func processes() []process {
	var all []process
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 20 || fields[0] == "Z" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		all = append(all, process{pid: pid, parent: parent, start: fields[19], words: strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")})
	}
	words := map[int]string{}
	for _, p := range all {
		words[p.pid] = strings.Join(p.words, "\x00")
	}
	return slices.DeleteFunc(all, func(p process) bool { return words[p.parent] == strings.Join(p.words, "\x00") })
}

// screenProcesses are what one screen is made of, besides its supervisor.
type screenProcesses struct {
	session, xserver process
}

// ofScreens are the processes that have an agent's run directory in their words, by the hash of
// the screen whose it is.
func ofScreens(a *agent) iter.Seq2[string, process] {
	run := filepath.Join(a.dir, "run") + "/"
	return func(yield func(string, process) bool) {
		for _, p := range processes() {
			_, behind, ok := strings.Cut(strings.Join(p.words, " "), run)
			hash, _, _ := strings.Cut(behind, "/")
			if ok && !yield(hash, p) {
				return
			}
		}
	}
}

// screens finds what an agent's screens consist of, by the run directory in their words.
func screens(a *agent) map[string]screenProcesses {
	found := map[string]screenProcesses{}
	for hash, p := range ofScreens(a) {
		s := found[hash]
		switch {
		case len(p.words) > 1 && p.words[1] == "session":
			s.session = p
		case filepath.Base(p.words[0]) == "Xvnc":
			s.xserver = p
		}
		found[hash] = s
	}
	for hash, s := range found {
		if s.session.pid == 0 && s.xserver.pid == 0 {
			delete(found, hash) // only a helper that is ending
		}
	}
	return found
}

// supervisors are the agent's supervisor processes: they run from its state directory.
func supervisors(a *agent) []process {
	var found []process
	for _, p := range processes() {
		if len(p.words) == 2 && p.words[1] == "supervise" && strings.HasPrefix(p.words[0], a.dir+"/") {
			found = append(found, p)
		}
	}
	return found
}

// plugins are the agent's long-lived driver processes.
func plugins(a *agent) []process {
	var found []process
	for _, p := range processes() {
		if len(p.words) == 1 && p.words[0] == filepath.Join(a.dir, "plugins", "nomad-driver-botscreen") {
			found = append(found, p)
		}
	}
	return found
}

// only is the one screen an agent runs.
func only(t *testing.T, a *agent) screenProcesses {
	t.Helper()
	all := screens(a)
	if len(all) != 1 {
		t.Fatalf("%d screens run, want 1: %v", len(all), all)
	}
	for _, s := range all {
		return s
	}
	return screenProcesses{}
}

// sessionOf is the session of the screen with this profile.
func sessionOf(t *testing.T, a *agent, profile string) process {
	t.Helper()
	want := screen.ID{Namespace: "default", Profile: screen.Profile(profile)}.Hash()
	for hash, s := range screens(a) {
		if strings.HasPrefix(hash, want) && s.session.pid != 0 {
			return s.session
		}
	}
	t.Fatalf("no screen of %s runs: %v", profile, screens(a))
	return process{}
}

// xservers names every screen's X server by pid and start time.
func xservers(a *agent) map[string]string {
	named := map[string]string{}
	for hash, s := range screens(a) {
		named[hash] = fmt.Sprintf("%d/%s", s.xserver.pid, s.xserver.start)
	}
	return named
}

// A process between its fork and its exec has its parent's words: taken for a session, it once
// gave a test's server a network of its own to listen in, that of a probe.
func TestProcessesWithoutForks(t *testing.T) {
	const mark = "a-process-with-a-fork"
	cmd := exec.Command("sh", "-c", "(echo; read line); true", mark) // the subshell is a fork
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	var found []int
	for _, p := range processes() {
		if slices.Contains(p.words, mark) {
			found = append(found, p.pid)
		}
	}
	if want := []int{cmd.Process.Pid}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v alone", found, want)
	}
	_ = in.Close()
	_ = cmd.Wait() // what read says at the end is nobody's concern
}

// screenGroups are the control groups of screens whose names fit the pattern, in every
// hierarchy of cgroup v1 and in the only one of v2.
func screenGroups(t testing.TB, pattern string) (found []string) {
	t.Helper()
	for _, tree := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		groups, err := filepath.Glob(filepath.Join(tree, "botscreen", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			if info, err := os.Stat(group); err == nil && info.IsDir() { // v2 has files beside them
				found = append(found, group)
			}
		}
	}
	return found
}
