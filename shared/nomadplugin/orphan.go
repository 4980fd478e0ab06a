// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// untilUsed calls end when the agent that started this process dies before used is called: it
// leaves nobody behind who knows of the process. The agent is gone when nobody has the other
// end of out any more, the pipe of the handshake. That is seen of one, too, that died before
// this process looked, and it does not matter who is whose parent. Where out is no pipe nothing
// is seen, and what stays without an agent is left to attendance.
func untilUsed(out int, end func()) (used func()) {
	// A copy, as the original is closed with the os.Stdout that go-plugin replaces.
	out, err := unix.FcntlInt(uintptr(out), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return func() {}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(out)
		return func() {}
	}
	go func() {
		if unread(out, wake) {
			end()
			return // wake may still be written to
		}
		_ = unix.Close(out)
		_ = unix.Close(wake)
	}()
	return sync.OnceFunc(func() { _, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
}

// unread waits until a pipe has no reader, and is false when wake is written to before.
func unread(out, wake int) bool {
	both := []unix.PollFd{{Fd: int32(out)}, {Fd: int32(wake), Events: unix.POLLIN}}
	_, err := unix.Poll(both, -1)
	for err == unix.EINTR {
		_, err = unix.Poll(both, -1)
	}
	return err == nil && both[1].Revents == 0
}

// uses says whether a call shows that the agent has written down where it finds this process,
// for its successor. It does so after Init, and before any other call to the driver.
func uses(method string) bool {
	name, ok := strings.CutPrefix(method, "/"+driverpb.Driver_ServiceDesc.ServiceName+"/")
	return ok && name != "Init"
}
