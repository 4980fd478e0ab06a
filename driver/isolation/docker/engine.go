// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/docker/docker/api/types/system"
)

// Health is what an engine says of itself.
type Health struct {
	Ready   bool
	Reason  string // why it is not ready, and what would change that
	Version string
}

// Check looks at the engine now. It ends with ctx.
func (b *Boundary) Check(ctx context.Context) Health {
	info, err := b.api.Info(ctx)
	if err != nil {
		return Health{Reason: b.whyAway(err)}
	}
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		return Health{Reason: "this node's kernel does not say its release: " + err.Error(), Version: info.ServerVersion}
	}
	if info.KernelVersion != unix.ByteSliceToString(release.Release[:]) {
		b.elsewhere.Store(true)
	}
	if reason := unfit(info); reason != "" {
		return Health{Reason: reason, Version: info.ServerVersion}
	}
	return Health{Ready: true, Version: info.ServerVersion}
}

// unfit says why an engine that answers cannot run screens.
func unfit(info system.Info) string {
	has := func(option string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return o == "name="+option || strings.HasPrefix(o, "name="+option+",")
		})
	}
	switch {
	case info.OSType != "linux":
		return fmt.Sprintf("this docker runs %s containers; a screen needs Linux ones", info.OSType)
	case has("rootless"):
		return "this docker is rootless and cannot give every screen a uid of its own. Use an engine that runs as root"
	case !has("seccomp"):
		return "this docker has no seccomp, which confines a desktop. Use a kernel and an engine built with it"
	case !info.PidsLimit:
		return "this docker cannot limit processes: the pids cgroup controller is missing. Mount it and restart docker"
	case !info.MemoryLimit:
		return "this docker cannot limit memory: the memory cgroup controller is missing. Mount it and restart docker"
	}
	return ""
}

// whyAway is why no engine answered, with the step that would change it.
func (b *Boundary) whyAway(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("docker at %s does not answer in time. Look at `systemctl status docker`", b.endpoint)
	}
	path := strings.TrimPrefix(b.endpoint, "unix://")
	switch _, stat := os.Stat(path); {
	case errors.Is(stat, fs.ErrNotExist):
		return fmt.Sprintf("docker is not running on this node: there is no %s. Install and start it, or set `docker { endpoint }` in the plugin's config", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("this driver may not talk to docker at %s. Run it as root", path)
	}
	return fmt.Sprintf("docker does not answer at %s (%s). Start it: systemctl start docker", path, connectionCause(err))
}

// connectionCause is the kernel's word in an engine client's error, which repeats the
// endpoint and asks whether the daemon is running.
func connectionCause(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	text := err.Error()
	for _, known := range []unix.Errno{unix.ECONNREFUSED, unix.ENOENT, unix.EACCES} {
		if strings.Contains(text, known.Error()) {
			return known.Error()
		}
	}
	return "no connection"
}
