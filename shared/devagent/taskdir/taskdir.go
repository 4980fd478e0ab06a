// SPDX-License-Identifier: MPL-2.0

// Package taskdir makes and removes the directories of an allocation, laid out as
// by a Nomad client:
//
//	<alloc>/                  0755, the agent's
//	  alloc/{data,logs,tmp}   0777, shared by the group
//	  <task>/                 0777
//	    local/                0777
//	    secrets/, private/    0777, tmpfs where the agent may mount
//	    tmp/                  1777
//
// What lies beneath <alloc> is in the hands of tasks: nothing here follows a link
// out of it.
package taskdir

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// secretsOptions are the data of the tmpfs mounts: 1 MiB, as in Nomad.
const secretsOptions = "size=1m,mode=0777"

// Alloc is the directory of one allocation.
type Alloc struct{ Dir string }

// Task is the directory of one task.
type Task struct {
	Alloc Alloc
	Name  string
}

// Task gives the directory of one task of the allocation.
func (a Alloc) Task(name string) Task { return Task{Alloc: a, Name: name} }

// Shared is what NOMAD_ALLOC_DIR names.
func (a Alloc) Shared() string { return filepath.Join(a.Dir, "alloc") }

// Logs holds the log files and their FIFOs.
func (a Alloc) Logs() string { return filepath.Join(a.Dir, "alloc", "logs") }

// Dir is the task's own directory.
func (t Task) Dir() string { return filepath.Join(t.Alloc.Dir, t.Name) }

// Local is what NOMAD_TASK_DIR names.
func (t Task) Local() string { return filepath.Join(t.Dir(), "local") }

// Secrets is what NOMAD_SECRETS_DIR names.
func (t Task) Secrets() string { return filepath.Join(t.Dir(), "secrets") }

// Build makes the shared directories. It may be repeated.
func (a Alloc) Build() error {
	if err := os.MkdirAll(a.Dir, 0o755); err != nil {
		return fmt.Errorf("build allocation directory: %w", err)
	}
	return inside(a.Dir, func(root *os.Root) error {
		for _, name := range []string{"alloc", "alloc/data", "alloc/logs", "alloc/tmp"} {
			if err := open(root, name, 0o777); err != nil {
				return fmt.Errorf("build allocation directory: %w", err)
			}
		}
		return nil
	})
}

// Build makes the directories of the task. It may be repeated, as before each
// restart. Warning says what is weaker than it should be.
func (t Task) Build() (warning string, err error) {
	err = inside(t.Alloc.Dir, func(root *os.Root) error {
		for _, name := range []string{"", "local", "secrets", "private"} {
			if err := open(root, filepath.Join(t.Name, name), 0o777); err != nil {
				return fmt.Errorf("build task directory: %w", err)
			}
		}
		if err := open(root, filepath.Join(t.Name, "tmp"), 0o777|fs.ModeSticky); err != nil {
			return fmt.Errorf("build task directory: %w", err)
		}
		return nil
	})
	if err != nil || os.Geteuid() != 0 {
		return "", err
	}
	for _, name := range []string{"secrets", "private"} {
		if err := t.mountMemory(name); err != nil {
			warning = fmt.Sprintf("%s of task %s lies on disk, not in memory: %v", name, t.Name, err)
		}
	}
	return warning, nil
}

// mountMemory puts a tmpfs on a directory of the task, once. The directory is
// reached through a descriptor, so that a task cannot move it away in between.
func (t Task) mountMemory(name string) error {
	var how unix.OpenHow
	how.Flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	how.Resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS
	dir, err := unix.Open(t.Alloc.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, filepath.Join(t.Name, name), &how)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return err
	}
	if stat.Type == unix.TMPFS_MAGIC && mounted(filepath.Join(t.Dir(), name)) {
		return nil
	}
	return unix.Mount("tmpfs", "/proc/self/fd/"+strconv.Itoa(fd), "tmpfs",
		unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, secretsOptions)
}

// Forget unmounts what lies in memory, when all tasks have ended: secrets do not
// outlive them. What is mounted by others stays and is named in the error.
func (a Alloc) Forget() error {
	var foreign []string
	for _, m := range mountsBeneath(a.Dir) {
		if base := filepath.Base(m); base != "secrets" && base != "private" || filepath.Dir(filepath.Dir(m)) != a.Dir {
			foreign = append(foreign, m)
			continue
		}
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			foreign = append(foreign, m)
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("still mounted: %s", strings.Join(foreign, ", "))
	}
	return nil
}

// Remove deletes the directory with everything in it. It refuses while something
// of another's is mounted beneath: a deletion would go through it.
func (a Alloc) Remove() error {
	if err := a.Forget(); err != nil {
		return fmt.Errorf("remove allocation directory: %w", err)
	}
	if err := os.RemoveAll(a.Dir); err != nil {
		return fmt.Errorf("remove allocation directory: %w", err)
	}
	return nil
}

func inside(dir string, f func(root *os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open allocation directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	return f(root)
}

// open makes a directory that every task may use, whatever the umask says.
func open(root *os.Root, name string, mode fs.FileMode) error {
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: not a directory", name)
	}
	if os.Geteuid() == 0 {
		uid, gid := nobody()
		if err := root.Lchown(name, uid, gid); err != nil {
			return err
		}
	}
	return root.Chmod(name, mode)
}

// overflowID is nobody where the node's user database does not say.
const overflowID = 65534

func nobody() (uid, gid int) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return overflowID, overflowID
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil {
		return overflowID, overflowID
	}
	return uid, gid
}

func mounted(path string) bool {
	for _, m := range mountsBeneath(filepath.Dir(path)) {
		if m == path {
			return true
		}
	}
	return false
}

// mountsBeneath lists the mount points below dir, innermost first.
func mountsBeneath(dir string) []string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape(fields[4]); strings.HasPrefix(at, dir+"/") {
			out = append([]string{at}, out...)
		}
	}
	return out
}

// unescape undoes the octal escapes of mountinfo (proc(5)).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
