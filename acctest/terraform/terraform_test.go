// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"os"
	"os/exec"
	"testing"
)

// row is one line of the test plan.
type row struct {
	id string
	f  func(*bench)
	// desktop: the row starts screens. acl: it needs tokens with policies. real: why only a
	// real Nomad can run it. needs: what the CLI has to know.
	desktop bool
	acl     bool
	real    string
	needs   feature
}

var rows []row

// add registers a row; each file of rows does so for its own.
func add(r ...row) bool {
	rows = append(rows, r...)
	return true
}

// TestTerraform runs every row on every CLI against the embedded agent, and against a real
// Nomad with ACLs where one is on PATH. Rows about cases have their names: TFM-01, TFM-03,
// TFM-05, TFM-06, TFM-08, TFM-10 and TFM-11.
func TestTerraform(t *testing.T) {
	clis := findCLIs()
	if len(clis) == 0 {
		t.Skip("neither terraform nor tofu is on PATH")
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		a := startEmbedded(t, "26000-26099")
		columns(t, a, clis)
	})
	t.Run("nomad", func(t *testing.T) {
		t.Parallel()
		a := startNomad(t, "27000-27099")
		columns(t, a, clis)
	})
}

func columns(t *testing.T, a *agent, clis []cli) {
	t.Run("columns", func(t *testing.T) { // a group: the agent ends after all of it
		for _, c := range clis {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				for _, r := range rows {
					t.Run(r.id, func(t *testing.T) { r.run(t, c, a) })
				}
			})
		}
	})
}

func (r row) run(t *testing.T, c cli, a *agent) {
	column, reason := c.name+"/"+a.kind, ""
	t.Cleanup(func() {
		outcome := "ok"
		switch {
		case t.Skipped():
			outcome = "skipped"
		case t.Failed():
			outcome = "FAILED"
		}
		report.note(r.id, column, outcome, reason)
	})
	switch {
	case r.needs != "" && !c.knows(t, r.needs):
		reason = c.lacks(r.needs)
	case r.acl && a.kind == "embedded":
		reason = "the embedded agent has one token and no policies"
	case r.real != "" && a.kind == "embedded":
		reason = r.real
	case r.desktop:
		reason = missing()
	}
	if reason != "" {
		t.Skip(reason)
	}
	r.f(newBench(t, c, a))
}

// missing is what a desktop lacks on this machine.
func missing() string {
	if os.Geteuid() != 0 {
		return "needs root: every screen gets a uid of its own"
	}
	for _, program := range []string{"Xvnc", "xfwm4", "xfce4-panel", "xfdesktop", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			return "needs " + program + ": run `make deps`"
		}
	}
	return ""
}
