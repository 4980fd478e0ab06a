// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
)

// X5: while a name flips between a directory and a link that leads out, what is bound is
// the directory or nothing; and what is removed afterwards is never what was bound.
func TestX5BindRace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	base, outside, scratch := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a b")
	for path, text := range map[string]string{filepath.Join(base, "real/marker"): "inside", filepath.Join(outside, "marker"): "outside"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default: // real is "x" or "link" is, by turns
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(base, "real"), unix.AT_FDCWD, filepath.Join(base, "link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	t.Cleanup(func() { _ = Unbind(scratch) })
	bound, refused := 0, 0
	for range 2000 {
		source, err := Volume{Base: base, Path: "real", Target: "/x"}.Open()
		if err != nil {
			refused++
			continue
		}
		path, err := Bind(source, scratch, "volume-0")
		_ = source.Close()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(path, "marker"))
		if err != nil || string(text) != "inside" {
			t.Fatalf("bound what has %q, %v", text, err)
		}
		bound++
		if err := Unbind(scratch); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	if bound == 0 || refused == 0 {
		t.Errorf("%d bound, %d refused: there was no race", bound, refused)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), filepath.Dir(scratch)) {
		t.Errorf("mounts are left: %v", err)
	}
}

// What a run bound is never deleted with the run.
func TestRemoveScratchKeepsWhatWasBound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	base, scratch := t.TempDir(), filepath.Join(t.TempDir(), "scratch")
	marker := filepath.Join(base, "data", "marker")
	if err := os.MkdirAll(filepath.Dir(marker), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"data", "data/marker"} {
		source, err := Volume{Base: base, Path: path}.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Bind(source, scratch, "volume-"+string(rune('0'+i))); err != nil {
			t.Fatal(err)
		}
		_ = source.Close()
	}
	if err := RemoveScratch(Record{Scratch: scratch}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("what was bound is gone: %v", err)
	}
	if _, err := os.Stat(scratch); err == nil {
		t.Error("the scratch directory is left")
	}
}

// X38: a cgroup whose name is another run's is not touched.
func TestX38GroupOfAnotherRun(t *testing.T) {
	order := Order{Instance: "0123456789abcdef"}
	record := Record{Instance: "fedcba9876543210", Cgroup: GroupName(order)}
	if !strings.HasSuffix(record.Cgroup, "-01234567") {
		t.Fatal(record.Cgroup)
	}
	if _, err := OpenGroup(anyTree(t), record); err == nil || !strings.Contains(err.Error(), "not this run's") {
		t.Errorf("error %v", err)
	}
}

func anyTree(t *testing.T) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		t.Skipf("needs cgroups: %v", err)
	}
	return tree
}

func TestUnescape(t *testing.T) {
	for text, want := range map[string]string{`/a\040b`: "/a b", `/a\134b`: `/a\b`, `/plain`: "/plain", `/end\04`: `/end\04`, `\999`: `\999`} {
		if got := cgroup.Unescape(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
