// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// spareUID is one that nobody has on a machine.
const spareUID = 61907

// startAs starts a helper under another uid; it needs root.
func startAs(t *testing.T, uid uint32, role string) *helper {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, to run a supervisor under a spare uid")
		}
		t.Skip("needs root, to run a supervisor under a spare uid")
	}
	// The uid must be able to execute us: go test builds into a private folder.
	dir, err := os.MkdirTemp("", "bss-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	binary, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	path := filepath.Join(dir, "supervisor")
	must(t, os.WriteFile(path, binary, 0o755))
	h := &helper{Cmd: exec.Command(path), t: t, lines: make(chan string, 100)}
	h.Env = []string{roleVariable + "=" + role, "PATH=/usr/bin:/bin"}
	h.Dir, h.Stderr = "/", os.Stderr
	h.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	h.start()
	return h
}

// X14: a supervisor has no capability, can get none, in no thread, cannot be looked
// into by others of its uid, and can be made to hold 1024 descriptors at the most.
func TestX14Hardened(t *testing.T) {
	h := startAs(t, spareUID, "hardened")
	var said []string
	for {
		line := h.next()
		if line == "hardened" {
			break
		}
		said = append(said, line)
		if line == "" {
			t.Fatalf("the supervisor ended: %q", said)
		}
	}
	threads := 0
	for _, line := range said {
		if rest, ok := strings.CutPrefix(line, "thread "); ok {
			threads++
			if rest != "1" {
				t.Errorf("a thread has NoNewPrivs %s", rest)
			}
		}
	}
	if threads < 2 {
		t.Errorf("%d threads, a Go program has more", threads)
	}
	none := strings.Repeat("0", 16)
	uid := strings.Join([]string{"61907", "61907", "61907", "61907"}, "\t")
	for _, want := range []string{
		"CapEff " + none, "CapPrm " + none, "Groups ", "Uid " + uid, "dumpable 0 <nil>", "files 1024 1024 <nil>",
	} {
		if !slices.Contains(said, want) {
			t.Errorf("no line %q in %q", want, said)
		}
	}
	// Another process of the same uid gets neither at its memory nor its descriptors.
	for _, name := range []string{"mem", "fd", "environ"} {
		path := filepath.Join("/proc", strconv.Itoa(h.Process.Pid), name)
		cmd := exec.Command("/usr/bin/head", "-c1", path)
		if name == "fd" {
			cmd = exec.Command("/bin/ls", path)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: spareUID, Gid: spareUID}}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("%s: %q, %v", path, out, err)
		}
	}
}

// X14: as uid 0 there is no supervisor.
func TestX14RefusesRoot(t *testing.T) {
	h := startAs(t, 0, "hardened")
	if got := h.says("error:"); !strings.Contains(got, "uid 0") {
		t.Errorf("it said %q", got)
	}
}

// X14: nor with a capability, whoever left it there.
func TestX14RefusesCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to leave a capability")
	}
	h := &helper{Cmd: exec.Command("/proc/self/exe"), t: t, lines: make(chan string, 100)}
	h.Env = []string{roleVariable + "=hardened"}
	h.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: spareUID, Gid: spareUID},
		AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE}, Pdeathsig: syscall.SIGKILL,
	}
	h.start()
	if got := h.says("error:"); !strings.Contains(got, "capabilities") {
		t.Errorf("it said %q", got)
	}
}
