// SPDX-License-Identifier: MPL-2.0

// Package namespace starts a process in a view of the node of its own: another mount
// table, another network, another account file. The boundaries without an engine use it.
package namespace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
)

// Start starts cmd from a thread that enter has put into namespaces of its own, and
// calls started on that thread before it returns. The thread is given up: the runtime
// ends it, and with it the namespaces' only member besides cmd. started may be nil.
func Start(cmd *exec.Cmd, enter, started func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := enter()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil && started != nil {
			err = started()
		}
		result <- err
	}()
	return <-result
}

// EnterNetwork moves this thread into the network namespace that Nomad made for the
// alloc; an empty path is the node's.
func EnterNetwork(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("join the alloc's network: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("join the alloc's network %s: %w", path, err)
	}
	return nil
}

// OwnMounts gives this thread a mount table of its own. What is mounted in it stays in
// it; what the node mounts later still appears.
func OwnMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if errors.Is(err, unix.EINVAL) {
		return errors.New("own mount namespace: the driver's root directory is not a mount point; where it runs in a chroot, bind-mount that directory onto itself first")
	}
	if err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	return nil
}

// NameAccount mounts copies of the node's account files, made in the directory dir, that
// name the account: dbus, Xfce, apptainer and others refuse a uid without an entry. dir
// is the caller's alone.
func NameAccount(dir string, account isolation.Account, home string) error {
	for name, line := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d:botscreen:%s:/bin/sh\n", account.Name, account.UID, account.GID, home),
		"group":  fmt.Sprintf("%s:x:%d:\n", account.Name, account.GID),
	} {
		if err := bindAccountFile(dir, name, line); err != nil {
			return err
		}
	}
	return nil
}

// bindAccountFile mounts a copy of /etc/<name> with our line in front: the first entry
// for an id is the one that counts (passwd(5), nsswitch.conf(5)).
func bindAccountFile(dir, name, line string) error {
	path := filepath.Join("/etc", name)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("account file: %w", err)
	}
	copyPath := filepath.Join(dir, name)
	if err := os.WriteFile(copyPath, append([]byte(line), old...), 0o644); err != nil {
		return fmt.Errorf("account file: %w", err)
	}
	if err := unix.Mount(copyPath, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("account file: mount on %s: %w", path, err)
	}
	return nil
}

// Hide mounts an empty read-only file system over dir, if there is one.
func Hide(dir string) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("hide %s: %w", dir, err)
	}
	return nil
}
