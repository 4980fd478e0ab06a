// SPDX-License-Identifier: MPL-2.0

package logmon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The log directory is writable by tasks, so every name in it is opened through the
// directory's descriptor, without following links, and looked at before it is used.

func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open log directory %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// MakeFIFOs makes the two FIFOs of a task (0600, the agent's). What a task put in
// their place is replaced.
func MakeFIFOs(dir, task string) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for _, stream := range []string{Stdout, Stderr} {
		if err := makeFIFO(int(d.Fd()), FIFO(task, stream)); err != nil {
			return fmt.Errorf("make log FIFO of %s: %w", task, err)
		}
	}
	return nil
}

func makeFIFO(dir int, name string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		if ownFIFO(stat) {
			return nil
		}
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0)
}

func ownFIFO(stat unix.Stat_t) bool {
	return stat.Mode&unix.S_IFMT == unix.S_IFIFO && int(stat.Uid) == os.Geteuid() && stat.Mode&0o077 == 0 && stat.Nlink == 1
}

// openFIFO opens a FIFO for reading. It is opened for writing too: then there is no
// end of file when a task ends, and the next run of the task finds a reader.
func openFIFO(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open log FIFO %s: %w", name, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || !ownFIFO(stat) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open log FIFO %s: it is not the FIFO of this agent", name)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// rotator writes name.0, name.1, … each at most max bytes, the newest count of them.
type rotator struct {
	dir   *os.File
	name  string
	count int
	max   int64

	file  *os.File
	index int
	size  int64
}

func newRotator(dir *os.File, name string, count int, limit int64) *rotator {
	r := &rotator{dir: dir, name: name, count: count, max: limit}
	if present := r.present(); len(present) > 0 {
		r.index = present[len(present)-1]
	}
	return r
}

func (r *rotator) present() []int { return Present(r.dir, r.name) }

// Present lists the numbers of base's log files in dir, in order.
func Present(dir *os.File, base string) []int {
	// The directory's descriptor keeps its position: list through another one.
	d, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if n, ok := index(name, base); ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// index gives the number of a log file, if name is one of base.
func index(name, base string) (int, bool) {
	suffix, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(suffix)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == suffix
}

// write appends; what cannot be written is dropped.
func (r *rotator) write(p []byte) {
	for len(p) > 0 {
		if r.file == nil && !r.open() {
			return
		}
		room := r.max - r.size
		if room <= 0 {
			r.next()
			continue
		}
		part := r.fit(p, room)
		if len(part) == 0 {
			r.next()
			continue
		}
		n, err := r.file.Write(part)
		r.size += int64(n)
		if err != nil {
			return
		}
		p = p[n:]
	}
}

// fit gives as much of p as the file has room for, up to the end of a line where
// there is one, so that lines stay whole.
func (r *rotator) fit(p []byte, room int64) []byte {
	if int64(len(p)) <= room {
		return p
	}
	for i := room - 1; i >= 0; i-- {
		if p[i] == '\n' {
			return p[:i+1]
		}
	}
	if r.size > 0 {
		return nil
	}
	return p[:room]
}

// open opens the current file, or the next one that is free where a task put
// something else in its place.
func (r *rotator) open() bool {
	for range r.count + 2 {
		name := r.name + "." + strconv.Itoa(r.index)
		fd, err := unix.Openat(int(r.dir.Fd()), name,
			unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
		if err == nil {
			var stat unix.Stat_t
			if unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Nlink == 1 {
				r.file, r.size = os.NewFile(uintptr(fd), name), stat.Size
				return true
			}
			_ = unix.Close(fd)
		} else if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return false
		}
		r.index++
	}
	return false
}

// next goes on with another file and deletes what is too old.
func (r *rotator) next() {
	r.close()
	r.index++
	for _, n := range r.present() {
		if n <= r.index-r.count {
			_ = unix.Unlinkat(int(r.dir.Fd()), r.name+"."+strconv.Itoa(n), 0)
		}
	}
}

func (r *rotator) close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// CheckFIFOs says whether the FIFOs of a task are still the agent's own.
func CheckFIFOs(dir, task string) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for _, stream := range []string{Stdout, Stderr} {
		var stat unix.Stat_t
		if err := unix.Fstatat(int(d.Fd()), FIFO(task, stream), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("log FIFO %s: %w", FIFO(task, stream), err)
		}
		if !ownFIFO(stat) {
			return fmt.Errorf("log FIFO %s: it is not the FIFO of this agent", FIFO(task, stream))
		}
	}
	return nil
}
