// SPDX-License-Identifier: MPL-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
)

// start launches cmd in a mount namespace of its own. A namespace belongs to a thread:
// one thread enters it, starts the process and is given up.
func start(cmd *exec.Cmd, order isolation.Order) error {
	if order.Account.Inherited {
		return cmd.Start() // without privilege there is no namespace to be had
	}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime ends the thread with the goroutine, and with it
		// the namespace's only member besides the session.
		runtime.LockOSThread()
		err := enterNamespace(order)
		if err == nil {
			err = cmd.Start()
		}
		result <- err
	}()
	return <-result
}

// enterNamespace gives this thread its own view of the node: an account file that
// names the session's uid (dbus, Xfce and others refuse a uid without an entry), and
// nothing in the directories that hold the node's and the job's secrets (X21).
func enterNamespace(order isolation.Order) error {
	if err := enterNetwork(order.NetworkNamespace); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	// What we mount stays here; what the node mounts later still appears.
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if errors.Is(err, unix.EINVAL) {
		return errors.New("own mount namespace: the driver's root directory is not a mount point; where it runs in a chroot, bind-mount that directory onto itself first")
	}
	if err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	for name, add := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d:botscreen:%s:/bin/sh\n", order.Account.Name, order.Account.UID, order.Account.GID, order.Home),
		"group":  fmt.Sprintf("%s:x:%d:\n", order.Account.Name, order.Account.GID),
	} {
		if err := bindAccountFile(order.Scratch, name, add); err != nil {
			return err
		}
	}
	for _, dir := range order.Hidden {
		if err := hide(dir); err != nil {
			return err
		}
	}
	return nil
}

// enterNetwork joins the network namespace that Nomad made for the alloc.
func enterNetwork(path string) error {
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

// bindAccountFile mounts a copy of /etc/<name> with our line in front: the first entry
// for an id is the one that counts (passwd(5), nsswitch.conf(5)).
func bindAccountFile(scratch, name, line string) error {
	path := filepath.Join("/etc", name)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("account file: %w", err)
	}
	copyPath := filepath.Join(scratch, name)
	if err := os.WriteFile(copyPath, append([]byte(line), old...), 0o644); err != nil { // scratch is root's alone
		return fmt.Errorf("account file: %w", err)
	}
	if err := unix.Mount(copyPath, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("account file: mount on %s: %w", path, err)
	}
	return nil
}

// hide mounts an empty read-only file system over dir.
func hide(dir string) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("hide %s: %w", dir, err)
	}
	return nil
}

// checkIdentity reads back who the kernel says the process is, before it runs anything
// (X29): the ids asked for, no other group, no capability.
func checkIdentity(pid int, account isolation.Account) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return fmt.Errorf("check identity: %w", err)
	}
	got := parseStatus(string(text))
	want := map[string]string{
		"Uid":    fourTimes(account.UID),
		"Gid":    fourTimes(account.GID),
		"Groups": joinGroups(account.Groups),
		"CapEff": "0000000000000000",
	}
	for field, value := range want {
		if got[field] != value {
			return fmt.Errorf("check identity: %s is %q, want %q", field, got[field], value)
		}
	}
	return nil
}

// parseStatus reads the "Name:\tvalues" lines of proc(5)'s status, white space folded.
func parseStatus(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return fields
}

// fourTimes is how status shows the real, effective, saved and file-system id.
func fourTimes(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	return strings.Join([]string{text, text, text, text}, " ")
}

func joinGroups(groups []uint32) string {
	texts := make([]string, len(groups))
	for i, g := range groups {
		texts[i] = strconv.FormatUint(uint64(g), 10)
	}
	return strings.Join(texts, " ")
}
