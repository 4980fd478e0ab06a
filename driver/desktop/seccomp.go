// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, see seccomp(2).
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgLow = 16 // low half of the first argument on little-endian machines
)

// Actions of a seccomp filter, see seccomp(2). They are spelled out because
// x/sys has them for amd64 only as untyped values of another width.
const (
	retAllow = uint32(unix.SECCOMP_RET_ALLOW)
	retErrno = uint32(unix.SECCOMP_RET_ERRNO)
)

// unixSocketsOnly is a program that lets a process open no sockets but AF_UNIX
// ones (rule X0): Xvnc's VNC-EXTENSION connects out at the wish of any X client
// and no option turns that off. Refused are
//
//	socket(domain, …)  with a domain other than AF_UNIX: EAFNOSUPPORT
//	io_uring_setup     whose rings open sockets without the call: ENOSYS
//	any other ABI      (i386 with its socketcall, x32, aarch32): ENOSYS
//
// EAFNOSUPPORT is what a kernel without that protocol answers, so Xvnc copes.
// A socket the process already has, or is given over a Unix socket, is not
// covered; the caller passes none and Xvnc receives none.
func unixSocketsOnly(abi seccompABI) ([]bpf.RawInstruction, error) {
	const refuse, refuseSocket, allow = -1, -2, -3 // where a jump goes, resolved below
	type step struct {
		load  uint32 // offset to load, when isLoad
		test  bpf.JumpTest
		value uint32
		yes   int // 0: fall through
		no    int
		is    bool // a load
	}
	steps := []step{
		{is: true, load: offsetArch},
		{test: bpf.JumpEqual, value: abi.arch, no: refuse},
		{is: true, load: offsetNumber},
	}
	if abi.foreignFrom != 0 {
		steps = append(steps, step{test: bpf.JumpGreaterOrEqual, value: abi.foreignFrom, yes: refuse})
	}
	steps = append(steps,
		step{test: bpf.JumpEqual, value: unix.SYS_IO_URING_SETUP, yes: refuse},
		step{test: bpf.JumpEqual, value: unix.SYS_SOCKET, no: allow},
		step{is: true, load: offsetArgLow},
		step{test: bpf.JumpEqual, value: unix.AF_UNIX, yes: allow, no: refuseSocket},
	)
	// The three ends follow the steps in this order.
	ends := map[int]int{allow: len(steps), refuseSocket: len(steps) + 1, refuse: len(steps) + 2}
	skip := func(from, target int) uint8 {
		if target == 0 {
			return 0
		}
		return uint8(ends[target] - from - 1)
	}
	var program []bpf.Instruction
	for i, s := range steps {
		if s.is {
			program = append(program, bpf.LoadAbsolute{Off: s.load, Size: 4})
			continue
		}
		program = append(program, bpf.JumpIf{Cond: s.test, Val: s.value, SkipTrue: skip(i, s.yes), SkipFalse: skip(i, s.no)})
	}
	program = append(program,
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retErrno | uint32(unix.EAFNOSUPPORT)},
		bpf.RetConstant{Val: retErrno | uint32(unix.ENOSYS)},
	)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble socket filter: %w", err)
	}
	return raw, nil
}

// seccompABI is what differs between machines.
type seccompABI struct {
	arch        uint32 // AUDIT_ARCH_* of the machine's own ABI
	foreignFrom uint32 // system call numbers from here on belong to another ABI; 0 if none do
}

// confineThread applies the filter to the calling OS thread and to what it
// starts, for good. The caller has locked its goroutine to the thread and
// never unlocks it, so the thread ends with the goroutine.
func confineThread() error {
	program, err := unixSocketsOnly(nativeABI)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Without SECCOMP_FILTER_FLAG_TSYNC: this thread alone.
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("install socket filter: %w", errno)
	}
	return nil
}
