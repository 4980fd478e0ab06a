// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
)

const (
	// defaultShm is /dev/shm, where a browser keeps what it draws (DOC-09).
	defaultShm = 1 << 30
	// defaultTmp is /tmp; apptainer's own 64 MiB are too few for a browser's downloads.
	defaultTmp = 1 << 30
	// ownFiles bounds our own small files of a launch.
	ownFiles = 4 << 20
)

// enter gives this thread the view of the node that apptainer starts in: its account has
// a name, the image is the one that open finds, and the scratch directory is a file
// system that goes with the namespace.
func enter(order isolation.Order, open func() (*os.File, error)) error {
	if err := namespace.EnterNetwork(order.NetworkNamespace); err != nil {
		return err
	}
	if err := namespace.OwnMounts(); err != nil {
		return err
	}
	if err := mountTmpfs(order.Scratch, ownFiles, 0o711); err != nil {
		return err
	}
	v := view{order.Scratch}
	if err := fill(order, v); err != nil {
		return err
	}
	if err := namespace.NameAccount(v.node(), order.Account, order.Home); err != nil {
		return err
	}
	if err := mountTmpfs(v.tmp(), cmp.Or(order.TmpBytes, defaultTmp), 0o1777); err != nil {
		return err
	}
	if err := mountTmpfs(v.shm(), cmp.Or(order.ShmBytes, defaultShm), 0o1777); err != nil {
		return err
	}
	if err := makeSocketDir(v); err != nil {
		return err
	}
	image, err := open()
	if err != nil {
		return err
	}
	defer image.Close()
	// What was checked is what apptainer finds: whoever swaps a name on the way to it
	// changes nothing (X5).
	if _, err := isolation.Bind(image, v.dir, imageName); err != nil {
		return err
	}
	return bindVolumes(order, v)
}

// fill makes everything in the scratch directory that is not a mount.
func fill(order isolation.Order, v view) error {
	dir, err := os.OpenRoot(v.dir)
	if err != nil {
		return fmt.Errorf("scratch files: %w", err)
	}
	defer dir.Close()
	for _, name := range []string{"node", "tmp", "shm", "config"} {
		if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("scratch files: %w", err)
		}
	}
	if !order.Account.Inherited {
		if err := dir.Chown("config", int(order.Account.UID), int(order.Account.GID)); err != nil {
			return fmt.Errorf("scratch files: %w", err)
		}
	}
	profile, err := seccompProfile()
	if err != nil {
		return fmt.Errorf("seccomp profile: %w", err)
	}
	if err := dir.WriteFile(seccompName, profile, 0o644); err != nil {
		return fmt.Errorf("scratch files: %w", err)
	}
	for _, file := range isolation.AccountFiles(order) {
		if err := dir.WriteFile(file.Name, []byte(file.Text), 0o644); err != nil {
			return fmt.Errorf("scratch files: %w", err)
		}
	}
	return nil
}

// makeSocketDir is for X servers: they want it sticky, whatever the image has there.
func makeSocketDir(v view) error {
	dir, err := os.OpenRoot(v.tmp())
	if err != nil {
		return fmt.Errorf("scratch files: %w", err)
	}
	defer dir.Close()
	if err := dir.Mkdir(".X11-unix", 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("scratch files: %w", err)
	}
	return dir.Chmod(".X11-unix", 0o777|fs.ModeSticky) // not by mkdir, which the umask cuts
}

// mountTmpfs takes mode as in chmod(2).
func mountTmpfs(dir string, size uint64, mode uint32) error {
	data := "size=" + strconv.FormatUint(size, 10) + ",mode=" + strconv.FormatUint(uint64(mode), 8)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// bindVolumes puts what the job binds beside it, in the same way.
func bindVolumes(order isolation.Order, v view) error {
	for i, volume := range order.Volumes {
		source, err := volume.Open()
		if err != nil {
			return err
		}
		_, err = isolation.Bind(source, v.dir, v.volume(i))
		_ = source.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
