// SPDX-License-Identifier: MPL-2.0

package display

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// startXvnc starts a real server on n and returns once it has its number.
func startXvnc(t *testing.T, n Number) *exec.Cmd {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("Xvnc", n.String(), "-displayfd", "3", "-geometry", "64x64", "-depth", "24", "-rfbport", "-1",
		"-rfbunixpath", filepath.Join(t.TempDir(), "rfb.sock"), "-rfbunixmode", "0600",
		"-SecurityTypes", "None", "-nolisten", "tcp")
	cmd.ExtraFiles = []*os.File{w}
	var said strings.Builder
	cmd.Stderr = &said
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != strconv.Itoa(int(n)) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("Xvnc on %s: %q, %v\n%s", n, line, err, said.String())
	}
	return cmd
}

// The whole life of a number on this machine with a real server: claimed, in use, still in use when /tmp is
// cleaned, stale after kill -9, cleared and used again (D2, D5, DSP-01, DSP-02, DSP-04).
func TestRealXvncHoldsItsNumber(t *testing.T) {
	if _, err := exec.LookPath("Xvnc"); err != nil {
		t.Skip("Xvnc is not installed")
	}
	if err := (Host{}).PrepareSocketDir(); err != nil {
		t.Log(err)
	}
	// Far from the numbers of anybody else, other runs of this test included.
	first := Number(2000 + os.Getpid()%20000)
	c := newClaims(t, Host{}, Band{first, first + 9})
	claim := mustClaim(t, c, None)
	n := claim.Number()
	t.Cleanup(func() { _ = os.Remove(filepath.Join("/tmp", socketDir, n.socketName())) })
	server := startXvnc(t, n)
	claim.Release()
	// With -displayfd the server writes no lock file at all, so its sockets are the only proof.
	if got := inspect(t, c.Host, n); got.State != InUse {
		t.Fatalf("running: %+v, want in use", got)
	}
	if got := mustClaim(t, c, n); got.Number() == n {
		t.Fatal("the number of a running server was given away")
	}
	if err := os.Remove(filepath.Join("/tmp", socketDir, n.socketName())); err != nil {
		t.Fatal(err)
	}
	if got := inspect(t, c.Host, n); got.State != InUse || !strings.Contains(got.Reason, "abstract") {
		t.Fatalf("after a cleaner: %+v, want in use by the abstract socket", got)
	}
	// The lock that servers without -displayfd write.
	lock := fmt.Sprintf("%10d\n", server.Process.Pid)
	if err := os.WriteFile(n.LockPath("/tmp"), []byte(lock), 0o444); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(n.LockPath("/tmp")) })
	if got := inspect(t, c.Host, n); got.State != InUse || got.PID != server.Process.Pid {
		t.Fatalf("with its lock: %+v, want in use by %d", got, server.Process.Pid)
	}
	if _, err := c.clear(n); err == nil {
		t.Error("the files of a running server were cleared")
	}

	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	if got := inspect(t, c.Host, n); got.State != Stale || got.PID != server.Process.Pid {
		t.Fatalf("killed: %+v, want stale", got)
	}
	again := mustClaim(t, c, n)
	if again.Number() != n || !slices.Contains(again.Cleared(), n.LockPath("/tmp")) {
		t.Fatalf("got %s, cleared %v, want %s and its lock cleared", again.Number(), again.Cleared(), n)
	}
	second := startXvnc(t, n)
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = second.Wait()
	if got := inspect(t, c.Host, n); got.State != Free {
		t.Errorf("stopped by itself: %+v, want free", got)
	}
}
