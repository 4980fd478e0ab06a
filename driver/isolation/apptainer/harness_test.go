// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// rootVariable names a directory with a desktop in it, as `docker export` makes one.
const rootVariable = "BOTSCREEN_TEST_ROOT"

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

func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// driver is the driver's binary, built once for all tests that need it.
var driver = sync.OnceValues(func() (path string, err error) {
	if driverDir, err = os.MkdirTemp("", "bsa-"); err != nil {
		return "", err
	}
	if err := os.Chmod(driverDir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(driverDir, "driver")
	cmd := exec.Command("go", "build", "-o", path, "github.com/botscreen/botscreen/cmd/nomad-driver-botscreen")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the driver: %w\n%s", err, out)
	}
	return path, nil
})

var driverDir string // where driver was built, empty if it was not

func TestMain(m *testing.M) {
	code := m.Run()
	if driverDir != "" {
		_ = os.RemoveAll(driverDir)
	}
	os.Exit(code)
}

// newOrder is an order for a session that nobody supervises: it waits for its plan.
func newOrder(t *testing.T, image string) isolation.Order {
	t.Helper()
	binary, err := driver()
	must(t, err)
	dir := folder(t, 0o711)
	uid := 300_000 + uint32(mathrand.IntN(1_000_000))
	order := isolation.Order{
		ID:       screen.ID{Namespace: "tests", Profile: screen.Profile(fmt.Sprintf("bot-%d", uid))},
		Instance: newInstance(), Binary: binary, Image: image,
		Account: isolation.Account{UID: uid, GID: uid, Name: "screen"},
		Log:     logFile(t, dir, "out"), ErrorLog: logFile(t, dir, "err"),
	}
	for path, owner := range map[*string]int{&order.DialDir: 0, &order.XDir: int(uid), &order.Home: int(uid), &order.Scratch: 0} {
		*path, err = os.MkdirTemp(dir, "d")
		must(t, err)
		must(t, os.Chown(*path, owner, owner))
	}
	must(t, os.Chmod(order.DialDir, 0o711))
	return order
}

func logFile(t *testing.T, dir, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	return ctx
}

// launched is a running session; it is gone at the test's end, whatever happened.
func launched(t *testing.T, b *Boundary, order isolation.Order) *sandbox {
	t.Helper()
	s, err := b.Launch(bounded(t), order)
	must(t, err)
	t.Cleanup(func() {
		ctx := bounded(t)
		if err := s.Kill(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.(*sandbox)
}

func awaitDone(t *testing.T, s isolation.Sandbox) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(limit):
		t.Fatal("the sandbox does not end")
	}
}

// left names what a run left on the node.
func left(t *testing.T, b *Boundary, order isolation.Order) []string {
	t.Helper()
	var found []string
	name := b.Intent(order).Cgroup
	if _, err := b.options.Cgroups.Open(name); err == nil {
		found = append(found, "cgroup "+name)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, order.Scratch) || strings.Contains(line, order.Home) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
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
