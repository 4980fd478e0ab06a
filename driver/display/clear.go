// SPDX-License-Identifier: MPL-2.0

package display

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// clear removes lock and socket file of a dead server on n and returns what it removed. The caller holds the
// claim of n and has seen the number stale.
func (h Host) clear(n Number) ([]string, error) {
	tmp, err := openDir(h.tmp())
	if err != nil {
		return nil, fmt.Errorf("clear display %s: %w", n, err)
	}
	defer tmp.Close()
	var cleared []string
	// The socket first: with the lock still there no other X server begins on this number.
	dir, err := openSocketDir(tmp)
	if err == nil {
		defer dir.Close()
		removed, err := removeDead(dir, n.socketName(), func() bool {
			status, err := h.Inspect(n)
			return err == nil && status.State == Stale
		})
		if err != nil {
			return nil, fmt.Errorf("clear display %s: %w", n, err)
		}
		if removed {
			cleared = append(cleared, filepath.Join(h.tmp(), socketDir, n.socketName()))
		}
	}
	removed, err := removeDead(tmp, n.lockName(), func() bool { return h.inspectLock(tmp, n).State == Stale })
	if err != nil {
		return cleared, fmt.Errorf("clear display %s: %w", n, err)
	}
	if removed {
		cleared = append(cleared, n.LockPath(h.tmp()))
	}
	return cleared, nil
}

// removeDead removes name from dir if dead still says so, and never anything that took its place meanwhile.
//
// Between a look and an unlink(2) a server may start and put its own file there. So the file is moved aside first,
// which is one step, and removed only if it is the one that was looked at; otherwise it goes back.
func removeDead(dir *os.File, name string, dead func() bool) (bool, error) {
	at := int(dir.Fd())
	var looked, moved unix.Stat_t
	// The descriptor keeps the inode, whose number would otherwise go to the very file that takes its place.
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &looked); err != nil {
		return false, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if !dead() {
		return false, fmt.Errorf("%s: a server took it meanwhile", name)
	}
	aside := ".botscreen-" + randomHex(8)
	if err := unix.Renameat2(at, name, at, aside, unix.RENAME_NOREPLACE); err != nil {
		return false, &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	err = unix.Fstatat(at, aside, &moved, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || moved.Dev != looked.Dev || moved.Ino != looked.Ino {
		return false, errors.Join(
			fmt.Errorf("%s: it was replaced meanwhile", name),
			unix.Renameat2(at, aside, at, name, unix.RENAME_NOREPLACE))
	}
	if err := unix.Unlinkat(at, aside, 0); err != nil {
		return false, &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return true, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
