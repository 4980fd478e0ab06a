// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// X23: the profile is docker's own, with a few calls allowed and nothing else changed.
func TestX23Profile(t *testing.T) {
	text, err := SeccompProfile()
	if err != nil {
		t.Fatal(err)
	}
	var ours seccomp.Seccomp
	if err := json.Unmarshal([]byte(text), &ours); err != nil {
		t.Fatal(err)
	}
	if ours.DefaultAction != specs.ActErrno {
		t.Errorf("by default a call is %s", ours.DefaultAction)
	}
	allowed := func(p []*seccomp.Syscall) map[string]bool {
		found := map[string]bool{}
		for _, rule := range p {
			unconditional := rule.Includes == nil && rule.Excludes == nil && len(rule.Args) == 0
			for _, name := range rule.Names {
				found[name] = found[name] || unconditional && rule.Action == specs.ActAllow
			}
		}
		return found
	}
	before, after := allowed(seccomp.DefaultProfile().Syscalls), allowed(ours.Syscalls)
	for name := range before {
		want := before[name] || slices.Contains(addedCalls, name)
		if after[name] != want {
			t.Errorf("%s is allowed: %t, want %t", name, after[name], want)
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d calls, docker's profile has %d", len(after), len(before))
	}
	for _, name := range []string{"mount", "bpf", "umount2", "clone3", "perf_event_open"} {
		if after[name] {
			t.Errorf("%s is allowed", name)
		}
	}
}
