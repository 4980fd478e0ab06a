// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

var nativeABI = seccompABI{arch: unix.AUDIT_ARCH_AARCH64}

// registers of a traced thread.
type registers = unix.PtraceRegsArm64

const (
	syscallLength = 4     // bytes of the svc instruction
	regsetGeneral = 1     // NT_PRSTATUS
	regsetSyscall = 0x404 // NT_ARM_SYSTEM_CALL, see elf.h
)

func readRegisters(pid int, regs *registers) error {
	return unix.PtraceGetRegSetArm64(pid, regsetGeneral, regs)
}

// replaceSyscall turns the system call that pid is about to make into another.
// The number lives in a register set of its own: writing x8 comes too late.
func replaceSyscall(pid int, regs registers, number uint64, args [3]uint64) error {
	copy(regs.Regs[:], []uint64{args[0], args[1], args[2], 0, 0})
	if err := unix.PtraceSetRegSetArm64(pid, regsetGeneral, &regs); err != nil {
		return err
	}
	nr := int32(number)
	vector := unix.Iovec{Base: (*byte)(unsafe.Pointer(&nr)), Len: uint64(unsafe.Sizeof(nr))}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(pid), regsetSyscall,
		uintptr(unsafe.Pointer(&vector)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func stackPointer(regs *registers) uintptr { return uintptr(regs.Sp) }

func syscallResult(regs *registers) int64 { return int64(regs.Regs[0]) }

// repeatSyscall makes pid, stopped behind a system call, make the one it had
// been about to make when regs were read: x8 still holds its number.
func repeatSyscall(pid int, regs registers) error {
	regs.Pc -= syscallLength
	return unix.PtraceSetRegSetArm64(pid, regsetGeneral, &regs)
}
