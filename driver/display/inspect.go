// SPDX-License-Identifier: MPL-2.0

package display

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// State says what a start may do with a number.
type State string

const (
	// Free: no lock, no socket.
	Free State = "free"
	// Stale: a lock or socket of a server that is dead. The number can be had once they are gone.
	Stale State = "stale"
	// InUse: an X server answers there.
	InUse State = "in use"
	// Blocked: no X server, but one could not start there either. Its lock names a living process that is
	// something else, or a zombie; or what lies at its path is no lock or no socket.
	Blocked State = "blocked"
)

// Status is what was found for one number.
type Status struct {
	Number Number
	State  State
	// PID is the process its lock names, 0 without a readable lock.
	PID int
	// Reason says in words why the number is not free; empty when it is.
	Reason string
}

// Host is where display numbers are looked for. The zero value is this machine.
type Host struct {
	// ProcFS is where proc(5) is mounted; empty means /proc.
	ProcFS string
	// TmpDir holds lock files and the socket directory; empty means /tmp, where every X server puts them.
	TmpDir string
}

func (h Host) proc() string { return cmp.Or(h.ProcFS, "/proc") }
func (h Host) tmp() string  { return cmp.Or(h.TmpDir, "/tmp") }

// Inspect looks at one number now. It changes nothing.
//
// A number is in use when the process its lock names lives, or when its abstract or path socket is bound: a
// cleaner of /tmp may delete lock and socket file under a living server, which goes on answering under the
// abstract name (D2).
func (h Host) Inspect(n Number) (Status, error) {
	sockets, err := h.sockets()
	if err != nil {
		return Status{}, err
	}
	return h.inspect(n, sockets)
}

// FreeIn counts the numbers of a band that a start could have now.
func (h Host) FreeIn(band Band) (int, error) {
	sockets, err := h.sockets()
	if err != nil {
		return 0, err
	}
	count := 0
	for n := range band.All() {
		status, err := h.inspect(n, sockets)
		if err != nil {
			return 0, err
		}
		if status.State == Free || status.State == Stale {
			count++
		}
	}
	return count, nil
}

// sockets reads /proc/net/unix, which is that of our own network namespace.
func (h Host) sockets() (map[Number]bound, error) {
	path := filepath.Join(h.proc(), "net/unix")
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("look for X sockets: %w", err)
	}
	defer f.Close()
	found, err := parseNetUnix(f, h.tmp())
	if err != nil {
		return nil, fmt.Errorf("look for X sockets: read %s: %w", path, err)
	}
	return found, nil
}

func (h Host) inspect(n Number, sockets map[Number]bound) (Status, error) {
	tmp, err := openDir(h.tmp())
	if err != nil {
		return Status{}, fmt.Errorf("inspect display %s: %w", n, err)
	}
	defer tmp.Close()
	status := h.inspectLock(tmp, n)
	// A socket is the stronger proof, but a lock that names the server tells more.
	if b, ok := sockets[n]; ok && status.State != InUse {
		status.State, status.Reason = InUse, "its "+b.String()+" is bound"
	}
	if status.State == Free || status.State == Stale {
		h.inspectSocketFile(tmp, &status)
	}
	return status, nil
}

func (b bound) String() string {
	if b.abstract {
		return "abstract socket"
	}
	return "socket"
}

// inspectLock judges the number by its lock file alone.
func (h Host) inspectLock(tmp *os.File, n Number) Status {
	status := Status{Number: n, State: Free}
	data, err := readLock(tmp, n.lockName())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status
	case err != nil:
		status.State, status.Reason = Blocked, "its lock file cannot be read: "+err.Error()
		return status
	}
	pid, ok := parseLock(data)
	if !ok {
		status.State, status.Reason = Stale, "its lock file names no process"
		return status
	}
	status.PID = pid
	switch p := h.process(pid); {
	case !p.alive:
		status.State, status.Reason = Stale, fmt.Sprintf("its lock names process %d, which is gone", pid)
	case p.zombie:
		status.State, status.Reason = Blocked, fmt.Sprintf("its lock names process %d, which is dead but not yet reaped", pid)
	case p.servesDisplay(n):
		status.State, status.Reason = InUse, fmt.Sprintf("X server %s (process %d) runs there", p.name, pid)
	default:
		// An X server would refuse: it believes every living pid.
		status.State, status.Reason = Blocked, fmt.Sprintf("its lock names process %d, which lives and is no X server there", pid)
	}
	return status
}

// readLock reads a lock without following a link, waiting on a FIFO or trusting its length.
func readLock(tmp *os.File, name string) ([]byte, error) {
	fd, err := unix.Openat(int(tmp.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	return io.ReadAll(io.LimitReader(f, 64))
}

// inspectSocketFile looks at a socket file that this network namespace knows nothing of: a server in another
// network namespace that shares /tmp may own it, and a new server would steal the path from it.
func (h Host) inspectSocketFile(tmp *os.File, status *Status) {
	dir, err := openSocketDir(tmp)
	if err != nil {
		// A missing or odd directory is the business of SocketDir; the number itself is not taken by it.
		return
	}
	defer dir.Close()
	name := status.Number.socketName()
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			status.State, status.Reason = Blocked, "its socket file cannot be looked at: "+err.Error()
		}
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil || info.Mode().Type() != fs.ModeSocket:
		status.State, status.Reason = Blocked, "what lies at its socket's path is no socket"
	case answers(f):
		status.State, status.Reason = InUse, "a server in another network namespace answers on its socket"
	case status.State == Free:
		status.State, status.Reason = Stale, "its socket file is left over"
	}
}

// answers reports whether somebody listens on the socket that f, an O_PATH descriptor, stands for. Only a
// refusal says that nobody does.
func answers(f *os.File) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))})
	return !errors.Is(err, unix.ECONNREFUSED)
}

func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openSocketDir(tmp *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(tmp.Fd()), socketDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(tmp.Name(), socketDir), Err: err}
	}
	return os.NewFile(uintptr(fd), socketDir), nil
}

// process is what proc(5) tells about a pid.
type process struct {
	alive, zombie bool
	name          string
	args          []string
}

func (h Host) process(pid int) process {
	dir := filepath.Join(h.proc(), strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		// proc mounted with hidepid hides other users' processes; kill(2) still tells whether they live.
		alive := h.proc() == "/proc" && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
		return process{alive: alive}
	}
	// The name in brackets may itself hold brackets and spaces; the state follows the last one.
	_, rest, _ := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
	p := process{alive: true, zombie: strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")}
	cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	p.args = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	p.name = filepath.Base(p.args[0])
	return p
}

// servesDisplay reports whether the process is an X server on n. All X servers that write lock files (Xvnc,
// Xtigervnc, Xorg, Xvfb, Xwayland, Xephyr, X) are called X-something; with -displayfd the number is on no command line.
func (p process) servesDisplay(n Number) bool {
	if !strings.HasPrefix(p.name, "X") {
		return false
	}
	return slices.Contains(p.args[1:], n.String()) || slices.Contains(p.args[1:], "-displayfd")
}
