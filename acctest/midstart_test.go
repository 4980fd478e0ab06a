// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"syscall"
	"testing"
)

// killedMidStart: an agent that is killed while a desktop comes up never learns what became
// of it. The next one starts the task again, in the same plugin, and there is one screen of
// it and nothing of the first (N1).
func killedMidStart(t *testing.T, a *agent) {
	a.must(t, "run", "--detach", a.job(t, "midway"))
	defer a.botscreen(t, "stop", "--force", "midway")
	a.eventually("a start that has begun", func() bool { return len(supervisors(a)) == 1 })
	before := plugins(a)
	a.end(syscall.SIGKILL)
	a.start()
	a.awaitNode()
	a.eventually("the screen", func() bool { return a.botscreen(t, "exec", "midway", "true").code == 0 })
	a.eventually("one of everything", func() bool {
		all := screens(a)
		for _, s := range all {
			return len(all) == 1 && s.session.pid != 0 && s.xserver.pid != 0 && len(supervisors(a)) == 1
		}
		return false
	})
	if after := plugins(a); len(before) != 1 || len(after) != 1 || after[0].pid != before[0].pid {
		t.Errorf("the plugin %v became %v", before, after)
	}
	a.onlyAlloc(t, "midway")
	a.must(t, "stop", "midway")
	gone(t, a)
}
