// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/jezek/xgb/xproto"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// FenceProbeMain is the program of the fence self-test: it runs as any program
// of the desktop does, tries to get round the lease in every way we know, prints
// what it found as JSON and returns the exit code. It harms nothing.
func FenceProbeMain(_ []string) int {
	if err := probe(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fence-probe:", err)
		return 1
	}
	return 0
}

func probe(in io.Reader, out io.Writer) error {
	var task probeTask
	if err := json.NewDecoder(io.LimitReader(in, 64<<10)).Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	var report probeReport
	try := func(what string, breach string) {
		report.Tried = append(report.Tried, what)
		if breach != "" {
			report.Breaches = append(report.Breaches, what+": "+breach)
		}
	}
	try("connect to rfb.sock by its path", connectsTo(task.RFBSocket))
	for _, victim := range []struct {
		name string
		pid  int
	}{{"Xvnc", task.XServer}, {"the session", task.Session}} {
		try("list descriptors of "+victim.name, listsDescriptors(victim.pid))
		try("open memory of "+victim.name, opens(victim.pid, "mem"))
		try("read environment of "+victim.name, opens(victim.pid, "environ"))
		try("read memory of "+victim.name, readsMemory(victim.pid))
		try("trace "+victim.name, traces(victim.pid))
		try("take a descriptor of "+victim.name, takesDescriptor(victim.pid))
	}
	try("find the X extensions XTEST and RECORD", findsExtensions("XTEST", "RECORD"))
	return json.NewEncoder(out).Encode(report)
}

// Each attempt returns what worked, or nothing when it was refused.

func connectsTo(path string) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return ""
	}
	return "connected"
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

func listsDescriptors(pid int) string {
	entries, err := os.ReadDir(procFile(pid, "fd"))
	if err != nil && len(entries) == 0 {
		return ""
	}
	return fmt.Sprintf("saw %d", len(entries))
}

func opens(pid int, name string) string {
	f, err := os.Open(procFile(pid, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); errors.Is(err, fs.ErrPermission) {
		return ""
	}
	return "opened"
}

// readsMemory uses process_vm_readv(2) on an address that is mapped nowhere:
// EFAULT instead of EPERM means that the attempt was admitted.
func readsMemory(pid int) string {
	var into [1]byte
	local := []unix.Iovec{{Base: &into[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: 0, Len: 1}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err == nil || errors.Is(err, unix.EFAULT) {
		return "admitted"
	}
	return ""
}

func traces(pid int) string {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0); errno != 0 {
		return ""
	}
	// A seized process runs on; it is given free by stopping it for a moment.
	if err := unix.PtraceInterrupt(pid); err == nil {
		var status unix.WaitStatus
		_, _ = unix.Wait4(pid, &status, unix.WALL, nil)
	}
	_ = unix.PtraceDetach(pid)
	return "attached"
}

// takesDescriptor uses pidfd_getfd(2) on a number that is hardly in use: EBADF
// instead of EPERM means that the attempt was admitted.
func takesDescriptor(pid int) string {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 1<<20, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	if err == nil || errors.Is(err, unix.EBADF) {
		return "admitted"
	}
	return ""
}

// findsExtensions connects to the display of the environment. Not getting there
// is no proof of anything, and so reported.
func findsExtensions(names ...string) string {
	number, err := strconv.Atoi(strings.TrimPrefix(os.Getenv("DISPLAY"), ":"))
	if err != nil {
		return "no display in the environment"
	}
	cookie, err := cookieFromFile(os.Getenv("XAUTHORITY"))
	if err != nil {
		return "no cookie: " + err.Error()
	}
	x, err := dialX(context.Background(), display.Number(number), cookie, 0)
	if err != nil {
		return "no connection: " + err.Error()
	}
	defer x.close()
	var present []string
	for _, name := range names {
		reply, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
		if err != nil {
			return err.Error()
		}
		if reply.Present {
			present = append(present, name)
		}
	}
	return strings.Join(present, ", ")
}

func cookieFromFile(path string) (display.Cookie, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return display.Cookie{}, err
	}
	entries, err := display.ParseAuthority(data)
	if err != nil {
		return display.Cookie{}, err
	}
	for _, entry := range entries {
		if cookie, ok := entry.Cookie(); ok {
			return cookie, nil
		}
	}
	return display.Cookie{}, fs.ErrNotExist
}
