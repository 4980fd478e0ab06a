// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/botscreen/botscreen/driver/isolation/namespace"
)

// X23: what apptainer is given refuses what docker's screens are refused.
func TestX23ProfileForApptainer(t *testing.T) {
	text, err := seccompProfile()
	must(t, err)
	var profile seccomp.Seccomp
	must(t, json.Unmarshal(text, &profile))
	if profile.DefaultAction != specs.ActErrno {
		t.Errorf("by default a call is %s", profile.DefaultAction)
	}
	actions := map[string][]specs.LinuxSeccompAction{}
	for _, rule := range profile.Syscalls {
		for _, name := range rule.Names {
			actions[name] = append(actions[name], rule.Action)
		}
		if rule.Action == specs.ActErrno {
			t.Errorf("%v: apptainer takes no rule with the default's action", rule.Names)
		}
	}
	if got := actions["clone3"]; len(got) != 2 || got[0] != specs.ActAllow && got[1] != specs.ActAllow || got[0] != specs.ActTrace && got[1] != specs.ActTrace {
		t.Errorf("clone3 is %v: allowed with a capability that screens have not, else unknown", got)
	}
	if got := actions["unshare"]; len(got) != 1 || got[0] != specs.ActAllow {
		t.Errorf("unshare is %v", got)
	}
}

// X23: by the kernel's word the session has the profile, and its status says nothing else.
func TestX23SeccompIsOn(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	s := launched(t, b, newOrder(t, image))
	status, err := namespace.Status(s.Session().PID)
	must(t, err)
	if status["Seccomp"] != "2" {
		if len(s.Warnings()) == 0 {
			t.Errorf("seccomp is off (%q) and nobody is told", status["Seccomp"])
		}
		t.Skip("this apptainer is built without seccomp, and says so")
	}
	if left := s.Warnings(); len(left) > 0 {
		t.Errorf("warned of %v", left)
	}
	if _, err := os.Stat(view{s.record.Scratch}.seccomp()); err == nil {
		t.Error("the profile is on the node, where the launch's own file system should be")
	}
}
