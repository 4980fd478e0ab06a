// SPDX-License-Identifier: MPL-2.0

package task

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// reown gives a profile's home to another account after its uid changed (X28). It
// works on descriptors only: it follows no link, leaves files with a second link alone
// (one could name a foreign file) and stays on the home's file system. It refuses while
// a process of the old owner lives, which could undo or race it.
func reown(dir string, from, to, gid uint32) error {
	if from == to {
		return nil
	}
	if pid, busy := livingProcessOf(from); busy {
		return fmt.Errorf("re-own home: pid %d of its former uid %d still runs", pid, from)
	}
	root, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("re-own home: %w", err)
	}
	defer unix.Close(root)
	var stat unix.Stat_t
	if err := unix.Fstat(root, &stat); err != nil {
		return fmt.Errorf("re-own home: %w", err)
	}
	w := ownerWalk{device: stat.Dev, from: from, to: to, gid: gid}
	if err := w.directory(root); err != nil {
		return fmt.Errorf("re-own home: %w", err)
	}
	return nil
}

type ownerWalk struct {
	device        uint64
	from, to, gid uint32
}

// directory re-owns what is in the open directory and then the directory itself.
func (w ownerWalk) directory(fd int) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(dup), "directory")
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.entry(fd, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return unix.Fchown(fd, int(w.to), int(w.gid))
}

func (w ownerWalk) entry(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	switch {
	case stat.Dev != w.device, stat.Uid != w.from:
		return nil // another file system, or not the former owner's
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		sub, err := unix.Openat(dir, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(sub)
		return w.directory(sub)
	case stat.Nlink > 1:
		return nil
	}
	return unix.Fchownat(fd, "", int(w.to), int(w.gid), unix.AT_EMPTY_PATH)
}

// livingProcessOf finds a process that runs as uid.
func livingProcessOf(uid uint32) (pid int, found bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join("/proc", e.Name()))
		if err != nil || uidOf(info) != uid {
			continue
		}
		if _, err := process.Observe(pid); err == nil { // a zombie runs nothing any more
			return pid, true
		}
	}
	return 0, false
}
