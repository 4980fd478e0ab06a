// SPDX-License-Identifier: MPL-2.0

package isolationtest

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// Main runs a package's tests and removes what Driver built for them.
func Main(m *testing.M) {
	code := m.Run()
	if driverDir != "" {
		_ = os.RemoveAll(driverDir)
	}
	os.Exit(code)
}

var driverDir string // where the driver was built, empty if it was not

// buildOnce builds the driver as it is shipped, static, where every uid may run it.
var buildOnce = sync.OnceValues(func() (path string, err error) {
	if driverDir, err = os.MkdirTemp("", "bsi-"); err != nil {
		return "", err
	}
	if err := os.Chmod(driverDir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(driverDir, "the driver") // S13
	cmd := exec.Command("go", "build", "-o", path, "github.com/botscreen/botscreen/cmd/nomad-driver-botscreen")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the driver: %w\n%s", err, out)
	}
	return path, nil
})

// Driver is the driver's binary, built once for all tests of a package; Main removes it.
func Driver(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	must(t, err)
	return path
}

// NewOrder is an order for a session that nobody supervises: it waits for its plan.
func NewOrder(t *testing.T, image string) isolation.Order {
	t.Helper()
	binary := Driver(t)
	dir, err := os.MkdirTemp("", "bso-") // short, because sockets lie below it
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o711))
	uid := 300_000 + uint32(mathrand.IntN(1_000_000))
	return isolation.Order{
		ID:       screen.ID{Namespace: "tests", Profile: screen.Profile(fmt.Sprintf("bot-%d", uid))},
		Instance: NewInstance(), Binary: binary, Image: image,
		Account: isolation.Account{UID: uid, GID: uid, Name: "screen"},
		Labels:  map[string]string{"job": "tests", "instance": "forged"},
		Log:     logFile(t, dir, "out"), ErrorLog: logFile(t, dir, "err"),
		DialDir: makeDir(t, dir, "dial", 0, 0o711), XDir: makeDir(t, dir, "x", uid, 0o700),
		Home: makeDir(t, dir, "home", uid, 0o700), Scratch: makeDir(t, dir, "boundary", 0, 0o700),
	}
}

func logFile(t *testing.T, dir, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Bounded is a context that outlives the test's own, for clean-ups.
func Bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	return ctx
}

// Launch launches a session; it is gone at the test's end, whatever happened.
func Launch(t *testing.T, b isolation.Boundary, order isolation.Order) isolation.Sandbox {
	t.Helper()
	s, err := b.Launch(Bounded(t), order)
	must(t, err)
	t.Cleanup(func() {
		ctx := Bounded(t)
		if err := s.Kill(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// AwaitDone waits for the end of a session.
func AwaitDone(t *testing.T, s isolation.Sandbox) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(limit):
		t.Fatal("the sandbox does not end")
	}
}

// MountsBelow names the mounts of this node whose line has one of these paths.
func MountsBelow(t *testing.T, paths ...string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var found []string
	for line := range strings.Lines(string(text)) {
		for _, path := range paths {
			if strings.Contains(line, path) {
				found = append(found, "mount "+strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}
