// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"encoding/json"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
)

// seccompProfile is the profile of all sandboxes in the form that apptainer can read. It
// knows one errno for everything that is refused, and takes no rule that says so again. A
// call that has to fail as if the kernel did not know it, so that programs try the older
// one, is given to a tracer: where none is that is ENOSYS, see seccomp(2). Who traces
// itself gains a call that the older one could have done as well.
func seccompProfile() ([]byte, error) {
	text, err := isolation.SeccompProfile()
	if err != nil {
		return nil, err
	}
	var profile seccomp.Seccomp
	if err := json.Unmarshal([]byte(text), &profile); err != nil {
		return nil, err
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule *seccomp.Syscall) bool {
		return rule.Action == specs.ActErrno && !unknownCall(rule)
	})
	for _, rule := range profile.Syscalls {
		if rule.Action == specs.ActErrno {
			rule.Action, rule.ErrnoRet = specs.ActTrace, nil
		}
	}
	return json.Marshal(profile)
}

func unknownCall(rule *seccomp.Syscall) bool {
	return rule.ErrnoRet != nil && *rule.ErrnoRet == uint(unix.ENOSYS)
}
