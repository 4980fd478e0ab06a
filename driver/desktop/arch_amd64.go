// SPDX-License-Identifier: MPL-2.0

package desktop

import "golang.org/x/sys/unix"

// On amd64 the x32 ABI shares the architecture value and has numbers of its own.
var nativeABI = seccompABI{arch: unix.AUDIT_ARCH_X86_64, foreignFrom: 0x40000000}

// registers of a traced thread.
type registers = unix.PtraceRegs

const syscallLength = 2 // bytes of the syscall instruction

func readRegisters(pid int, regs *registers) error { return unix.PtraceGetRegs(pid, regs) }

// replaceSyscall turns the system call that pid is about to make into another.
func replaceSyscall(pid int, regs registers, number uint64, args [3]uint64) error {
	regs.Orig_rax, regs.Rdi, regs.Rsi, regs.Rdx = number, args[0], args[1], args[2]
	regs.R10, regs.R8 = 0, 0
	return unix.PtraceSetRegs(pid, &regs)
}

func stackPointer(regs *registers) uintptr { return uintptr(regs.Rsp) }

func syscallResult(regs *registers) int64 { return int64(regs.Rax) }

// repeatSyscall makes pid, stopped behind a system call, make the one it had
// been about to make when regs were read.
func repeatSyscall(pid int, regs registers) error {
	regs.Rip -= syscallLength
	regs.Rax = regs.Orig_rax
	return unix.PtraceSetRegs(pid, &regs)
}
