// SPDX-License-Identifier: MPL-2.0

package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func build(t *testing.T) Task {
	t.Helper()
	a := Alloc{Dir: filepath.Join(t.TempDir(), "with space", "alloc-id")}
	if err := a.Build(); err != nil {
		t.Fatal(err)
	}
	task := a.Task("bot")
	if _, err := task.Build(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Remove() })
	return task
}

func TestModes(t *testing.T) {
	task := build(t)
	want := map[string]fs.FileMode{
		task.Alloc.Dir:      0o755,
		task.Alloc.Shared(): 0o777,
		task.Alloc.Logs():   0o777,
		filepath.Join(task.Alloc.Dir, "alloc", "tmp"): 0o777,
		task.Dir():                           0o777,
		task.Local():                         0o777,
		task.Secrets():                       0o777,
		filepath.Join(task.Dir(), "private"): 0o777,
		filepath.Join(task.Dir(), "tmp"):     0o777 | fs.ModeSticky,
	}
	for path, mode := range want {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ fs.ModeDir; got != mode {
			t.Errorf("%s: mode %v, want %v", path, got, mode)
		}
	}
}

// NMD-19: secrets lie in memory, and nothing is executed from there.
func TestSecretsAreInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	task := build(t)
	warning, err := task.Build()
	if err != nil {
		t.Fatal(err)
	}
	if warning != "" {
		t.Skip("this machine does not let root mount: " + warning)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(task.Secrets(), &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Type != unix.TMPFS_MAGIC || stat.Flags&unix.ST_NOEXEC == 0 {
		t.Errorf("type %x, flags %x: want a tmpfs with noexec", stat.Type, stat.Flags)
	}
	if n := len(mountsBeneath(task.Alloc.Dir)); n != 2 {
		t.Errorf("%d mounts after two builds, want 2", n)
	}
	if err := task.Alloc.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(task.Alloc.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// X6: a link planted by a task is not followed by the agent.
func TestPlantedLinkIsNotFollowed(t *testing.T) {
	for _, planted := range []string{"local", "secrets", "tmp"} {
		task := build(t)
		outside := t.TempDir()
		if err := os.Chmod(outside, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(task.Dir(), planted)
		_ = unix.Unmount(path, unix.MNT_DETACH)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, path); err != nil {
			t.Fatal(err)
		}
		if _, err := task.Build(); err == nil {
			t.Errorf("%s: the link was accepted", planted)
		}
		if info, _ := os.Stat(outside); info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the directory outside has mode %v now", planted, info.Mode())
		}
	}
}

func TestRemoveStopsAtForeignMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	task := build(t)
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := task.Local()
	if err := unix.Mount(precious, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("this machine does not let root mount: %v", err)
	}
	err := task.Alloc.Remove()
	if err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("got %v, want an error that names %s", err, at)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("the file behind the mount: %v", err)
	}
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}
