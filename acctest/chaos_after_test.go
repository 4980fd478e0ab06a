// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// told checks that the events say why the desktop ended that something was done to then: the
// driver's own word, or that of the task's end. An agent that begins may miss the first.
func (c *chaos) told(v *victim, then time.Time) {
	c.a.eventually("the reason in the events of "+v.name+" ("+c.now+")", func() bool {
		allocs, _, err := c.a.client().Jobs().Allocations(v.name, true, nil)
		if err != nil {
			return false
		}
		for _, stub := range allocs {
			if state := stub.TaskStates[v.name]; state != nil {
				for _, e := range state.Events {
					reason := e.Details["exit_message"]
					if word, ok := strings.CutPrefix(e.DisplayMessage, "Screen ended: "); ok {
						reason = word
					}
					if reason != "" && time.Unix(0, e.Time).After(then) {
						return true
					}
				}
			}
		}
		return false
	})
	c.checks++
}

// aloneLimit is what a session has that no supervisor ever reached, as of a container which its
// engine was killed in the start of and does not know any more: it ends after two minutes.
const aloneLimit = 2*time.Minute + startLimit

// alone checks that each screen has one supervisor, one session, one X server and one log
// collector, in one container where it has any, and that nothing else of ours runs.
func (c *chaos) alone() {
	c.t.Helper()
	c.a.within(aloneLimit, "one of everything ("+c.now+")", func() bool {
		sessions, servers := map[string]int{}, map[string]int{}
		for hash, p := range ofScreens(c.a) {
			switch {
			case len(p.words) > 1 && p.words[1] == "session":
				sessions[hash]++
			case filepath.Base(p.words[0]) == "Xvnc":
				servers[hash]++
			}
		}
		for _, v := range c.victims {
			if sessions[v.hash] != 1 || servers[v.hash] != 1 || v.box.engine != nil && len(c.containers(v)) != 1 {
				return false
			}
		}
		return len(sessions) == len(c.victims) && len(servers) == len(c.victims) && len(supervisors(c.a)) == len(c.victims) &&
			len(plugins(c.a)) == 1 && c.collectors() == len(c.victims)
	})
	c.checks++
}

// collectors counts the processes that read the logs of tasks.
func (c *chaos) collectors() (n int) {
	for _, p := range processes() {
		if len(p.words) > 3 && p.words[1] == "logmon" && strings.HasPrefix(p.words[3], c.a.dir+"/") {
			n++
		}
	}
	return n
}

// pluginFiles counts the descriptors of the plugin.
func (c *chaos) pluginFiles() int {
	files := 0
	for _, p := range plugins(c.a) {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
		files += len(entries)
	}
	return files
}

// leavesNothing stops everything and looks for what is left.
func (c *chaos) leavesNothing(before int) {
	c.a.eventually("as few descriptors in the plugin as at the start", func() bool { return c.pluginFiles() <= before })
	for _, v := range c.victims {
		c.a.must(c.t, "stop", "--force", v.name)
	}
	gone(c.t, c.a)
	if left := staleLocks(c.t, "/tmp/.X220[0-9][0-9]-lock"); len(left) > 0 {
		c.fatal("left in /tmp: %v", left)
	}
	c.a.eventually("end of every mount", func() bool { return len(c.mounts()) == 1 }) // that of smallState
	c.a.eventually("end of every log collector", func() bool { return c.collectors() == 0 })
	for _, v := range c.victims {
		c.a.eventually("end of every container of "+v.name, func() bool { return len(c.containers(v)) == 0 })
		if left := screenGroups(c.t, v.hash+"-*"); len(left) > 0 {
			c.fatal("cgroups are left: %v", left)
		}
	}
	c.checks += 7
}

// mounts are those below the agent's directory.
func (c *chaos) mounts() (found []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		c.fatal("%v", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], c.a.dir) {
			found = append(found, fields[4])
		}
	}
	return found
}

// explain shows what a run that failed was about, while its agent still answers.
func (c *chaos) explain() {
	if !c.t.Failed() {
		return
	}
	c.t.Logf("it was %s; mounts: %v", c.now, c.mounts())
	c.t.Logf("%d plugins, %d supervisors, %d log collectors", len(plugins(c.a)), len(supervisors(c.a)), c.collectors())
	for _, p := range processes() {
		if words := strings.Join(p.words, " "); strings.Contains(words, c.a.dir) {
			c.t.Logf("pid %d of %d: %.200s", p.pid, p.parent, words)
		}
	}
	for hash, s := range screens(c.a) {
		c.t.Logf("screen %s: session %d, X server %d", hash, s.session.pid, s.xserver.pid)
	}
	for _, v := range c.victims {
		allocs, _, err := c.a.client().Jobs().Allocations(v.name, true, nil)
		if err != nil {
			c.t.Log(err)
			continue
		}
		slices.SortFunc(allocs, func(a, b *api.AllocationListStub) int { return int(a.CreateTime - b.CreateTime) })
		for _, stub := range allocs[max(0, len(allocs)-2):] {
			c.t.Logf("%s (%s) alloc %s: wanted to %s, is %s", v.name, v.hash, stub.ID, stub.DesiredStatus, stub.ClientStatus)
			if state := stub.TaskStates[v.name]; state != nil {
				for _, e := range state.Events {
					c.t.Logf("    %s %s: %s", time.Unix(0, e.Time).Format("15:04:05.000"), e.Type, e.DisplayMessage)
				}
			}
		}
	}
}

// staleLocks are X locks of which the server is dead. A live one may be another test's.
func staleLocks(t *testing.T, pattern string) (stale []string) {
	t.Helper()
	locks, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range locks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(text))); err != nil {
			stale = append(stale, path)
		}
	}
	return stale
}

func (c *chaos) fatal(format string, args ...any) {
	c.t.Helper()
	c.a.showLog()
	c.t.Fatalf("%s: %s", c.now, fmt.Sprintf(format, args...))
}

func (c *chaos) report(count int) {
	total := 0
	var lines []string
	for name, n := range c.survived {
		total += n
		lines = append(lines, fmt.Sprintf("%4d  %s", n, name))
	}
	slices.Sort(lines)
	c.t.Logf("%d faults of %d survived, %d checks:\n%s", total, count, c.checks, strings.Join(lines, "\n"))
}
