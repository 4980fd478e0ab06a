// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// execGate decides whether Xvnc may execute programs: until it is ready, to
// compile its keyboard map, and never after (rule X2).
//
// Any X client can make the server run xkbcomp (XkbGetKeyboardByName). That
// child inherits Xvnc's RFB sockets and, being dumpable, can be robbed of them
// by every program of its uid. So execve is referred to us by the kernel
// (seccomp_unotify(2)); when we are gone it fails, too.
type execGate struct {
	file *os.File
	shut atomic.Bool
}

// execFilter refers execve and execveat to the listener of the filter. Calls of
// other ABIs are refused by unixSocketsOnly, which is in force before.
var execFilter = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetNumber},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_EXECVE, Jt: 1},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_EXECVEAT, Jt: 0, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
}

// install makes the tracee put the gate before itself and hands the listener
// over. It cannot be done before its exec: Go forks by vfork without giving its
// processor free, so an exec that waits for a goroutine may wait for ever.
func (t *tracee) installGate() (*execGate, error) {
	// The filter lies on the tracee's stack for the time of the call.
	at := stackPointer(&t.entered)
	text := encodeFilter(execFilter, at)
	saved := make([]byte, len(text))
	if _, err := unix.PtracePeekData(t.pid, at, saved); err != nil {
		return nil, fmt.Errorf("read stack: %w", err)
	}
	if _, err := unix.PtracePokeData(t.pid, at, text); err != nil {
		return nil, fmt.Errorf("write filter: %w", err)
	}
	fd, err := t.call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uint64(at))
	if _, restored := unix.PtracePokeData(t.pid, at, saved); restored != nil {
		return nil, &brokenError{fmt.Errorf("restore stack: %w", restored)}
	}
	if err != nil {
		return nil, fmt.Errorf("install filter: %w", err)
	}
	gate, err := takeListener(t.pid, int(fd))
	if _, closed := t.call(unix.SYS_CLOSE, uint64(fd), 0, 0); closed != nil {
		err = errors.Join(err, closed)
	}
	if err != nil {
		return nil, &brokenError{fmt.Errorf("take over listener: %w", err)}
	}
	return gate, nil
}

// encodeFilter is struct sock_fprog, to lie at address at, and its program.
//
//	len:2 | padding:6 | address of the program:8 | code:2 jt:1 jf:1 k:4 | …
func encodeFilter(program []unix.SockFilter, at uintptr) []byte {
	const header = 16
	text := binary.LittleEndian.AppendUint64(nil, uint64(len(program)))
	text = binary.LittleEndian.AppendUint64(text, uint64(at)+header)
	for _, in := range program {
		text = binary.LittleEndian.AppendUint16(text, in.Code)
		text = append(text, in.Jt, in.Jf)
		text = binary.LittleEndian.AppendUint32(text, in.K)
	}
	return text
}

func takeListener(pid, fd int) (*execGate, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	ours, err := unix.PidfdGetfd(pidfd, fd, 0) // close-on-exec, see its page
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(ours, true); err != nil { // so that the poller watches it
		_ = unix.Close(ours)
		return nil, err
	}
	return &execGate{file: os.NewFile(uintptr(ours), "execve gate")}, nil
}

// The structures of seccomp_unotify(2).
type (
	execQuestion struct {
		id    uint64
		pid   uint32
		flags uint32
		data  [64]byte // struct seccomp_data
	}
	execAnswer struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}
)

// run answers until close, or until nobody is behind the gate any more.
func (g *execGate) run() {
	conn, err := g.file.SyscallConn()
	if err != nil {
		return
	}
	for {
		var question execQuestion
		var failed error
		abandoned := false
		err := conn.Read(func(fd uintptr) bool {
			var asked bool
			if asked, abandoned = look(int(fd)); asked {
				failed = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&question))
			}
			return asked || abandoned
		})
		switch {
		case err != nil || abandoned:
			return // closed, or nobody can ask any more
		case failed == nil:
			g.answer(conn.Control, question.id)
		}
		// Else the asker died after it had asked (ENOENT).
	}
}

// look reports whether a question waits, and if none does, whether the last process behind
// the gate is gone. Only with a question may it be received: before Linux 6.11 that sleeps
// for ever, also when nobody is left to ask.
func look(fd int) (asked, abandoned bool) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
		return false, false
	}
	asked = poll[0].Revents&unix.POLLIN != 0
	return asked, !asked && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// answer lets the call go on or refuses it. The asker may be dead already.
func (g *execGate) answer(control func(func(fd uintptr)) error, id uint64) {
	reply := execAnswer{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if g.shut.Load() {
		reply = execAnswer{id: id, err: -int32(unix.EPERM)}
	}
	_ = control(func(fd uintptr) { _ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&reply)) })
}

// close ends run. A call that waits, and every later one, fails with ENOSYS.
func (g *execGate) close() error { return g.file.Close() }

func ioctl(fd uintptr, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
