// SPDX-License-Identifier: MPL-2.0

package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/control"
)

// named are the session's processes with this in their command line.
func (r *rig) named(text string) (pids []int) {
	below, err := process.Descendants(r.identity.PID)
	must(r.t, err)
	for _, pid := range below {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r *rig) awaitNamed(text string, want int) {
	r.t.Helper()
	deadline := time.Now().Add(limit)
	for len(r.named(text)) != want {
		if time.Now().After(deadline) {
			r.t.Fatalf("%d of %q run, want %d", len(r.named(text)), text, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// X20: a shell, a script and a detached child before a takeover: streams closed and
// processes gone, also one that left its session, its parent and its environment. What
// runs with force stays.
func TestX20Detached(t *testing.T) {
	s := newSupervised(t)
	const script = `setsid sleep 7771 & (env -i setsid sleep 7772 &) ; exit 0`
	if got, err := s.run(shell(script), strings.NewReader("")); err != nil || got.ExitCode != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	forced := control.ExecRequest{Argv: []string{"sh", "-c", "setsid sleep 7773 & exit 0"}, Force: true}
	if got, err := s.run(forced, strings.NewReader("")); err != nil || got.ExitCode != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, name := range []string{"sleep 7771", "sleep 7772", "sleep 7773"} {
		s.awaitNamed(name, 1)
	}
	_, err := s.client.Take(t.Context(), control.TakeRequest{Viewer: "ann"})
	must(t, err)
	s.awaitNamed("sleep 7771", 0)
	s.awaitNamed("sleep 7772", 0)
	if len(s.named("sleep 7773")) != 1 {
		t.Error("what a person ran with force was ended")
	}
	status, err := s.client.Status(t.Context())
	must(t, err)
	if status.State != "ready" {
		t.Errorf("the screen is %s: %s", status.State, status.Reason)
	}
}
