// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
)

// rootVariable names a directory with a desktop in it, as `docker export` makes one,
// browserVariable one that has a browser too.
const (
	rootVariable    = "BOTSCREEN_TEST_ROOT"
	browserVariable = "BOTSCREEN_TEST_BROWSER_ROOT"
)

// limit bounds every wait; none takes nearly as long.
const limit = 60 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// boundary is one on the node's apptainer; it takes images of dirs. Without apptainer
// the test is skipped.
func boundary(t *testing.T, dirs ...string) *Boundary {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: every screen gets a uid of its own")
	}
	path, err := exec.LookPath("apptainer")
	if err != nil {
		t.Skip("needs apptainer, and there is none on PATH")
	}
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		t.Skipf("needs cgroups to count with: %v", err)
	}
	b := New(Options{Path: path, ImageDirs: dirs, StateDir: folder(t, 0o711), Cgroups: groups})
	health := b.Check(t.Context())
	if !health.Ready {
		t.Skipf("needs an apptainer that works: %s", health.Reason)
	}
	return b
}

// folder is short, because sockets lie below it, and everybody may go through it.
func folder(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsa-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, mode))
	return dir
}

// desktopRoot is a directory with what a screen needs. Without one the test is skipped.
func desktopRoot(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(rootVariable)
	if dir == "" {
		t.Skipf("needs a directory with a desktop: scripts/with-engine.sh makes one where apptainer is on PATH, and %s names another", rootVariable)
	}
	return dir
}

// emptyRoot has nothing but places for what is mounted: the session needs no program of
// an image until a desktop starts, and apptainer none at all.
func emptyRoot(t *testing.T) (dir, image string) {
	t.Helper()
	dir = folder(t, 0o755)
	image = filepath.Join(dir, "empty")
	for _, name := range []string{"", "bin", "dev", "etc", "proc", "sys", "tmp", "var/tmp", "root"} {
		must(t, os.MkdirAll(filepath.Join(image, name), 0o755))
	}
	return dir, image
}

func TestMain(m *testing.M) { isolationtest.Main(m) }

func newOrder(t *testing.T, image string) isolation.Order { return isolationtest.NewOrder(t, image) }
func bounded(t *testing.T) context.Context                { return isolationtest.Bounded(t) }
func awaitDone(t *testing.T, s isolation.Sandbox)         { isolationtest.AwaitDone(t, s) }

func launched(t *testing.T, b *Boundary, order isolation.Order) *sandbox {
	t.Helper()
	return isolationtest.Launch(t, b, order).(*sandbox)
}

// left names what a run left on the node.
func left(t *testing.T, b *Boundary, order isolation.Order) []string {
	t.Helper()
	var found []string
	name := b.Intent(order).Cgroup
	if _, err := b.options.Cgroups.Open(name); err == nil {
		found = append(found, "cgroup "+name)
	}
	found = append(found, isolationtest.MountsBelow(t, order.Scratch, order.Home)...)
	for _, pid := range pidsOf(order.Account.UID) {
		found = append(found, fmt.Sprintf("process %d", pid))
	}
	return found
}

// pidsOf are the processes of a uid as this node sees them, zombies left out.
func pidsOf(uid uint32) []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t", uid)) || bytes.Contains(status, []byte("\nState:\tZ")) {
			continue
		}
		var pid int
		_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(path)), "%d", &pid)
		pids = append(pids, pid)
	}
	return pids
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}
