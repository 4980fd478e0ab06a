// SPDX-License-Identifier: MPL-2.0

// Package chromium tells tests whether the real browser can run here as it does on screens:
// under an ordinary account, with its own sandbox.
package chromium

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// nobody is an account without rights, where the test has root's.
const nobody = 65534

// Need returns the browser's path. Without one the test is skipped, which fails in CI, and
// also where its sandbox cannot be had.
func Need(t testing.TB) (path string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatalf("needs chromium: %v", err)
	case err != nil:
		t.Skip("needs chromium: run `make deps`")
	}
	NeedNamespaces(t)
	return path
}

// NeedNamespaces skips the test where the machine gives ordinary accounts no user namespaces,
// as in a chroot: no browser has its sandbox then, in a container as little as on the node.
func NeedNamespaces(t testing.TB) {
	t.Helper()
	probe := exec.Command("unshare", "--user", "true") // of util-linux
	if os.Geteuid() == 0 {
		probe.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("Chromium's sandbox needs user namespaces, which are refused here: %v: %s", err, out)
	}
}
