// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// untilUsed calls end when the process that started this one dies before used is closed: an
// agent that is killed while it loads its plugins leaves nobody behind who would end them.
// After the first call of the driver's an agent keeps where the process is found, and its
// successor takes it over. A parent-death signal would come at the end of the agent's thread.
func untilUsed(used <-chan struct{}, end func()) {
	agent, err := unix.PidfdOpen(os.Getppid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return // it has died already, or this kernel has no pidfd: as without this
	}
	f := os.NewFile(uintptr(agent), "agent")
	go func() {
		<-used
		_ = f.Close()
	}()
	go func() {
		raw, err := f.SyscallConn()
		if err == nil && raw.Read(func(fd uintptr) bool { return readable(int(fd)) }) == nil {
			end()
		}
	}()
}

// readable says whether a pidfd's process has ended.
func readable(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for err == unix.EINTR {
		n, err = unix.Poll(poll, 0)
	}
	return err == nil && n == 1
}

// uses says whether a call is the driver's own, and not one that only looks at the plugin.
func uses(method string) bool {
	return strings.HasPrefix(method, "/"+driverpb.Driver_ServiceDesc.ServiceName+"/")
}
