// SPDX-License-Identifier: MPL-2.0

package host_test

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/host"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
)

func TestConformance(t *testing.T) {
	for _, program := range []string{"Xvnc", "xfwm4", "xfce4-panel", "xfdesktop", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run `make deps`", program)
		}
	}
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		t.Skipf("needs cgroups to count with: %v", err)
	}
	isolationtest.Run(t, isolationtest.Suite{
		New: func(*testing.T) isolation.Boundary { return &host.Boundary{Cgroups: groups} },
		Left: func(t *testing.T, order isolation.Order) []string {
			name := (&host.Boundary{Cgroups: groups}).Intent(order).Cgroup
			if _, err := groups.Open(name); err == nil {
				return []string{"cgroup " + name}
			}
			return nil
		},
		// On the host nothing is around a session that could be taken away: it is.
		Destroy: func(t *testing.T, record isolation.Record) {
			if err := unix.Kill(record.Session.PID, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	})
}

// X35: a screen says which limits it has not; with a cgroup that has them all there is nothing
// to say.
func TestX35MissingLimitsAreSaid(t *testing.T) {
	warnings := func(groups *cgroup.Tree) []string {
		order := isolationtest.NewOrder(t, "")
		order.Limits = cgroup.Limits{MemoryBytes: 512 << 20, PidsMax: 500}
		return isolationtest.Launch(t, &host.Boundary{Cgroups: groups}, order).(isolation.Warner).Warnings()
	}
	if said := warnings(nil); len(said) != 1 || !strings.Contains(said[0], "no limits on memory and processes") {
		t.Errorf("without cgroups: %q", said)
	}
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		t.Skipf("needs cgroups: %v", err)
	}
	for _, each := range warnings(groups) {
		if !strings.Contains(each, "has processes of its own") { // in a container, see package cgroup
			t.Errorf("with cgroups: %q", each)
		}
	}
}
