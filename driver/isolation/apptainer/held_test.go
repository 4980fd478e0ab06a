// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// heldRole makes the test's binary a driver that comes no further than to the second of the two
// groups in this directory.
const heldRole = "BOTSCREEN_TEST_HELD"

// TestHeldHelper is no test: it is that driver.
func TestHeldHelper(t *testing.T) {
	dir := os.Getenv(heldRole)
	if dir == "" {
		t.Skip("it serves another test")
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{}
	err := startIn(cmd, nil, []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}, func() error { return nil })
	t.Fatalf("it was let go: %v", err)
}

// Issue 7, X35: a driver that is killed before it has put a sandbox into its cgroup leaves none
// behind that is in no group and no record.
func TestKilledBeforeTheGroup(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		// A file of this name that is opened only once somebody reads it.
		if err := unix.Mkfifo(filepath.Join(dir, name, "cgroup.procs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	driver := exec.Command(os.Args[0], "-test.run=^TestHeldHelper$")
	driver.Env = append(os.Environ(), heldRole+"="+dir)
	driver.Stderr = os.Stderr
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = driver.Wait() }()
	defer func() { _ = driver.Process.Kill() }()
	first, err := os.Open(filepath.Join(dir, "one", "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	text, err := io.ReadAll(first)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	held, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	if err := driver.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, 30_000)
	}
	if n != 1 {
		_ = unix.PidfdSendSignal(held, unix.SIGKILL, nil, 0)
		t.Errorf("it lives on, in no group: %v", err)
	}
}
