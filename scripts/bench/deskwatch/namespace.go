// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideMark is set in the copy of us that runs in the private mount namespace.
const insideMark = "DESKWATCH_INSIDE"

// enterNamespace runs us again in a mount namespace of its own, in which the uid
// has an entry in /etc/passwd: the bus refuses to run without one.
func enterNamespace(uid int) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run as uid %d: only root can", uid)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideMark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	return cmd.Run()
}

// addPasswdEntry shadows /etc/passwd by a copy with one more line.
func addPasswdEntry(uid int, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	shadow := dir + "/passwd"
	text = fmt.Appendf(text, "screen:x:%d:%d::/nonexistent:/bin/sh\n", uid, uid)
	if err := os.WriteFile(shadow, text, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(shadow, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("shadow /etc/passwd: %w", err)
	}
	return nil
}
