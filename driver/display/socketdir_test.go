// SPDX-License-Identifier: MPL-2.0

package display

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// DSP-06 is this and TestD7MissingDirectoryIsMade: not ours, read-only, absent.
func TestD7SocketDirInWords(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make directories of other owners")
	}
	for name, tc := range map[string]struct {
		make  func(t *testing.T, path string) error
		words string
		fatal bool
	}{
		"right": {make: func(_ *testing.T, p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777|fs.ModeSticky))
		}},
		"missing":         {make: func(*testing.T, string) error { return nil }, words: "is missing"},
		"mode 0755":       {make: func(_ *testing.T, p string) error { return os.Mkdir(p, 0o755) }, words: "has mode 0755, not 1777"},
		"without sticky":  {make: func(_ *testing.T, p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777)) }, words: "has mode 0777, not 1777"},
		"another owner":   {make: func(_ *testing.T, p string) error { return errors.Join(os.Mkdir(p, 0o755), os.Chown(p, 1000, 1000)) }, words: "belongs to uid 1000"},
		"a file":          {make: func(_ *testing.T, p string) error { return os.WriteFile(p, nil, 0o644) }, words: "is not a directory", fatal: true},
		"a link":          {make: func(_ *testing.T, p string) error { return os.Symlink("/tmp", p) }, words: "is not a directory", fatal: true},
		"read-only mount": {make: mountReadOnly, words: "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			h := Host{TmpDir: t.TempDir()}
			path := filepath.Join(h.TmpDir, socketDir)
			if err := tc.make(t, path); err != nil {
				t.Fatal(err)
			}
			err := h.CheckSocketDir()
			if tc.words == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var problem *SocketDirError
			if !errors.As(err, &problem) {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(problem.Problem, tc.words) || problem.Fatal != tc.fatal {
				t.Errorf("problem %q, fatal %v, want %q, %v", problem.Problem, problem.Fatal, tc.words, tc.fatal)
			}
			if !strings.Contains(problem.Sentence(), path) || problem.Fix == "" {
				t.Errorf("sentence %q, fix %q", problem.Sentence(), problem.Fix)
			}
		})
	}
}

func mountReadOnly(t *testing.T, path string) error {
	t.Helper()
	if err := os.Mkdir(path, 0o777); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "mode=1777"); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return nil
}

func TestD7MissingDirectoryIsMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes it")
	}
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	h := Host{TmpDir: t.TempDir()}
	for range 2 {
		if err := h.PrepareSocketDir(); err != nil {
			t.Fatal(err)
		}
	}
	// What is there is left as it is.
	path := filepath.Join(h.TmpDir, socketDir)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	var problem *SocketDirError
	if err := h.PrepareSocketDir(); !errors.As(err, &problem) {
		t.Errorf("got %v, want the mode named", err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o755 {
		t.Errorf("mode was changed to %v", info.Mode())
	}
}
