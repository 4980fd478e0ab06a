// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"strings"
	"syscall"
	"testing"
)

// sleepsAndWakes leaves a desktop alone until it sleeps, loses its supervisor meanwhile, and
// uses it again; its task never ends.
func sleepsAndWakes(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "sleeper", `idle_stop = "2s"`))
	defer a.must(t, "stop", "sleeper")
	alloc := a.onlyAlloc(t, "sleeper")
	// It may sleep already, and status does not wake it.
	a.eventually("sleep", func() bool {
		s := a.status(t, "sleeper")
		return s.Supervisor != nil && s.Supervisor.State == "asleep"
	})
	a.eventually("the event of it", func() bool { return strings.Contains(a.events(t, alloc, "sleeper"), "Asleep: not used for 2s") })
	asleep := only(t, a)
	if asleep.xserver.pid != 0 {
		t.Errorf("asleep it has an X server: %+v", asleep)
	}
	old := supervisors(a)
	if len(old) != 1 {
		t.Fatalf("supervisors %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("the next supervisor to find it asleep", func() bool {
		now := supervisors(a)
		if len(now) != 1 || now[0].pid == old[0].pid {
			return false
		}
		s := a.status(t, "sleeper")
		return s.Supervisor != nil && s.Supervisor.State == "asleep"
	})
	screenshot(t, a, "sleeper")
	awake := only(t, a)
	if awake.session.pid != asleep.session.pid || awake.xserver.pid == 0 {
		t.Errorf("asleep %+v, awake %+v", asleep, awake)
	}
	a.eventually("the event of the wake", func() bool { return strings.Contains(a.events(t, alloc, "sleeper"), "Desktop woken after") })
}
