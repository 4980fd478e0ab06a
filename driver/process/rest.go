// SPDX-License-Identifier: MPL-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rest gives back what this process does not need while it waits: free heap, and the pages of
// its own program that its start has touched. Those are in the kernel's page cache, so
// whatever is needed comes back with the next use, without a disk; but until then nobody
// has to count them, and the kernel is free to drop them (madvise(2), MADV_DONTNEED).
func Rest() error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("rest: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("rest: %w", err)
	}
	var errs []error
	for line := range bytes.Lines(maps) {
		if start, end, ok := constantPart(line, program); ok {
			if _, _, errno := syscall.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED); errno != 0 {
				errs = append(errs, fmt.Errorf("rest: madvise %x-%x: %w", start, end, errno))
			}
		}
	}
	return errors.Join(errs...)
}

// constantPart reads a line of maps (proc_pid_maps(5)) and says whether it is a part of the
// program's file that nobody can have written to: only those may be thrown away.
//
//	00400000-0171b000 r-xp 00000000 fe:00 1234   /path/of/program
func constantPart(line []byte, program string) (start, end uintptr, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 6 || len(fields[1]) != 4 || fields[1][0] != 'r' || fields[1][1] != '-' {
		return 0, 0, false
	}
	// The path is the rest of the line, spaces included.
	at := bytes.IndexByte(line, '/')
	if at < 0 || string(bytes.TrimSuffix(line[at:], []byte("\n"))) != program {
		return 0, 0, false
	}
	first, last, _ := bytes.Cut(fields[0], []byte("-"))
	a, errA := strconv.ParseUint(string(first), 16, 64)
	b, errB := strconv.ParseUint(string(last), 16, 64)
	if errA != nil || errB != nil || a >= b {
		return 0, 0, false
	}
	return uintptr(a), uintptr(b), true
}
