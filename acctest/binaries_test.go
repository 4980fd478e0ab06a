// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// build makes the binaries under test once: those of BOTSCREEN_BIN, as `make test` sets
// it, or fresh ones.
var build = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BOTSCREEN_BIN"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "botscreen-bin")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "../cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// binary is the path of one of our programs.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func TestMain(m *testing.M) {
	code := m.Run()
	printReport()
	if os.Getenv("BOTSCREEN_BIN") == "" {
		if dir, err := build(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// needDesktop skips on a machine that cannot run a screen.
func needDesktop(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: every screen gets a uid of its own")
	}
	for _, program := range []string{"Xvnc", "xfwm4", "xfce4-panel", "xfdesktop", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run `make deps`", program)
		}
	}
}
