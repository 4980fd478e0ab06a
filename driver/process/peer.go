// SPDX-License-Identifier: MPL-2.0

package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is who is at the other end of a Unix socket by the kernel's word: whoever connected,
// listened or made the pair (SO_PEERCRED in unix(7)). A pid is 0 where that process is in
// a pid namespace that this one does not see.
func Peer(conn syscall.Conn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		cred, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failure); err != nil {
		return nil, err
	}
	return cred, nil
}
