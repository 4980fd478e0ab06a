// SPDX-License-Identifier: MPL-2.0

package display

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketDirError says what is wrong with /tmp/.X11-unix.
type SocketDirError struct {
	Path string
	// Problem is the state in words, such as "is missing".
	Problem string
	// Fix is what an administrator does about it.
	Fix string
	// Fatal: X servers cannot be reached at all or by anybody but their owner. Otherwise they still listen on
	// the abstract name and the problem is worth a warning.
	Fatal bool
}

func (e *SocketDirError) Error() string { return e.Path + " " + e.Problem }

// Sentence is the error for a person.
func (e *SocketDirError) Sentence() string {
	consequence := "X servers then listen on the abstract socket name only"
	if e.Fatal {
		consequence = "X servers cannot make their sockets there"
	}
	return fmt.Sprintf("The directory of the X sockets, %s, %s; %s. %s", e.Path, e.Problem, consequence, e.Fix)
}

// CheckSocketDir says what is wrong with the directory of the X sockets, or nil (D7). It changes nothing.
func (h Host) CheckSocketDir() error {
	tmp, err := openDir(h.tmp())
	if err != nil {
		return fmt.Errorf("check X socket directory: %w", err)
	}
	defer tmp.Close()
	if problem := h.checkSocketDir(tmp); problem != nil {
		return problem
	}
	return nil
}

// PrepareSocketDir makes the directory of the X sockets, root's and mode 1777, when it is missing and we are
// root, and then checks it. A directory that is there is never changed: it is other servers' too.
func (h Host) PrepareSocketDir() error {
	if os.Geteuid() == 0 {
		if err := h.makeSocketDir(); err != nil {
			return fmt.Errorf("make X socket directory: %w", err)
		}
	}
	return h.CheckSocketDir()
}

func (h Host) makeSocketDir() error {
	tmp, err := openDir(h.tmp())
	if err != nil {
		return err
	}
	defer tmp.Close()
	switch err := unix.Mkdirat(int(tmp.Fd()), socketDir, 0o700); {
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EROFS):
		// The check that follows has the words for both.
		return nil
	case err != nil:
		return &fs.PathError{Op: "mkdir", Path: filepath.Join(h.tmp(), socketDir), Err: err}
	}
	dir, err := openSocketDir(tmp)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Through the descriptor, and not by mkdir's mode, which the umask cuts.
	if err := dir.Chmod(0o777 | fs.ModeSticky); err != nil {
		return err
	}
	return nil
}

func (h Host) checkSocketDir(tmp *os.File) *SocketDirError {
	problem := &SocketDirError{Path: filepath.Join(h.tmp(), socketDir)}
	repair := fmt.Sprintf("Run `chown root:root %[1]s && chmod 1777 %[1]s` as root.", problem.Path)
	var stat unix.Stat_t
	err := unix.Fstatat(int(tmp.Fd()), socketDir, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch mode := fs.FileMode(stat.Mode & 0o1777); {
	case errors.Is(err, fs.ErrNotExist):
		problem.Problem = "is missing"
		problem.Fix = fmt.Sprintf("Run `mkdir -m 1777 %s` as root.", problem.Path)
	case err != nil:
		problem.Problem, problem.Fix = "cannot be looked at: "+err.Error(), repair
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		problem.Problem, problem.Fatal = "is not a directory", true
		problem.Fix = fmt.Sprintf("Remove it as root and run `mkdir -m 1777 %s`.", problem.Path)
	case h.readOnly():
		problem.Problem = "is on a read-only file system (WSL mounts it so)"
		problem.Fix = fmt.Sprintf("Run `umount %s` or mount a tmpfs there to get socket files.", problem.Path)
	case stat.Uid != 0:
		problem.Problem, problem.Fix = fmt.Sprintf("belongs to uid %d, who can replace every socket in it, not to root", stat.Uid), repair
	case mode != 0o1777:
		problem.Problem, problem.Fix = fmt.Sprintf("has mode %04o, not 1777", mode), repair
	default:
		return nil
	}
	return problem
}

func (h Host) readOnly() bool {
	var vfs unix.Statfs_t
	err := unix.Statfs(filepath.Join(h.tmp(), socketDir), &vfs)
	return err == nil && vfs.Flags&unix.ST_RDONLY != 0
}
