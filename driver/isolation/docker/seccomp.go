// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// namespaceCalls are what a browser needs to put its renderers into user namespaces of
// their own. docker's default profile keeps them for privileged containers; without any
// of them a browser runs without its sandbox, or not at all (X23).
var namespaceCalls = []string{"chroot", "clone", "setns", "unshare"}

// seccompProfile is docker's default profile with namespaceCalls allowed, as JSON. What
// a new user namespace would give a process beyond that (mount, bpf and the like) stays
// refused: the profile looks at the container's capabilities, and it has none.
var seccompProfile = sync.OnceValues(func() (string, error) {
	profile := seccomp.DefaultProfile()
	// A call with several rules is a matter of the library's taste; these get one.
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(namespaceCalls, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule *seccomp.Syscall) bool { return len(rule.Names) == 0 })
	profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{
		LinuxSyscall: specs.LinuxSyscall{Names: namespaceCalls, Action: specs.ActAllow},
	})
	text, err := json.Marshal(profile)
	return string(text), err
})
