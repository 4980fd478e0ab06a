// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
)

// Bind mounts what source holds on a new name in the directory dir, which is the caller's
// alone, and returns the path. source has to be opened in this mount table: only that
// can be mounted in it. What is mounted below source does not come along.
func Bind(source *os.File, dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if err := makeTarget(source, dir, name); err != nil {
		return "", fmt.Errorf("bind %s: %w", source.Name(), err)
	}
	from := "/proc/thread-self/fd/" + strconv.Itoa(int(source.Fd()))
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind %s: %w", source.Name(), err)
	}
	// The node's later mounts have no business in it, nor its in the node's.
	if err := unix.Mount("", path, "", unix.MS_PRIVATE, ""); err != nil {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		return "", fmt.Errorf("bind %s: %w", source.Name(), err)
	}
	return path, nil
}

func makeTarget(source *os.File, dir, name string) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info.IsDir() {
		return root.Mkdir(name, 0o700)
	}
	return root.WriteFile(name, nil, 0o600)
}

// Unbind undoes all mounts beneath dir in this mount table; without any it does nothing.
// It has to succeed before anything beneath dir is removed: a removal goes through mounts.
func Unbind(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("undo mounts: %w", err)
	}
	var errs []error
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the newest first
		fields := strings.Fields(lines[i])
		if len(fields) < 5 {
			continue
		}
		path := cgroup.Unescape(fields[4])
		if !strings.HasPrefix(path, filepath.Clean(dir)+"/") {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("undo mount %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// RemoveScratch takes away what a run's launch wrote and bound.
func RemoveScratch(record Record) error {
	if record.Scratch == "" {
		return nil
	}
	if err := Unbind(record.Scratch); err != nil {
		return err
	}
	return os.RemoveAll(record.Scratch)
}
