// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// addedCalls are what a screen needs beyond docker's default profile, which keeps them
// for privileged containers.
var addedCalls = []string{
	// A browser puts its renderers into user namespaces of their own with these; without
	// any of them it runs without its sandbox, or not at all (X23).
	"chroot", "clone", "setns", "unshare",
	// The session hides Xvnc from the desktop's programs with it (X2). The kernel asks for
	// the same permission as for ptrace(2), which the default profile allows.
	"pidfd_getfd",
}

// SeccompProfile is docker's default profile with addedCalls allowed, as JSON. What a
// new user namespace would give a process beyond that (mount, bpf and the like) stays
// refused: the profile looks at the container's capabilities, and it has none.
var SeccompProfile = sync.OnceValues(func() (string, error) {
	profile := seccomp.DefaultProfile()
	// A call with several rules is a matter of the library's taste; these get one.
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(addedCalls, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule *seccomp.Syscall) bool { return len(rule.Names) == 0 })
	profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{
		LinuxSyscall: specs.LinuxSyscall{Names: addedCalls, Action: specs.ActAllow},
	})
	text, err := json.Marshal(profile)
	return string(text), err
})
