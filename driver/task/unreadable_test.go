// SPDX-License-Identifier: MPL-2.0

package task

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/process"
)

// Issue 7: a record that nobody can read wedges no screen. The sessions of its run end, with
// a group or without, those of other runs do not, and it goes.
func TestClearUnreadable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: directories of a run are root's")
	}
	const hash = "0123456789ab"
	dir := t.TempDir()
	m := New(Settings{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: "/proc/self/exe"}, nil, nil, hclog.NewNullLogger())
	p := places{run: filepath.Join(dir, "run", hash), dial: filepath.Join(dir, "run", hash, "dial")}
	if err := os.MkdirAll(p.dial, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(string(m.runs), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(m.runs), hash+".json"), []byte("\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	grouped, alone, other := dialling(t, p.dial), dialling(t, p.dial), dialling(t, filepath.Join(dir, "run", "ba9876543210", "dial"))
	if tree, err := cgroup.Open(cgroup.Host{}, ""); err == nil {
		if group, err := tree.Create(hash+"-01234567", cgroup.Limits{}); err == nil {
			t.Cleanup(func() { _ = group.Remove() })
			if err := group.Add(grouped.PID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.clearUnreadable(t.Context(), p, hash); err != nil {
		t.Fatal(err)
	}
	if grouped.Alive() || alone.Alive() || !other.Alive() {
		t.Errorf("in a group alive %v, without %v, another run's %v", grouped.Alive(), alone.Alive(), other.Alive())
	}
	if _, err := os.Stat(p.run); err == nil {
		t.Error("the run directory is left")
	}
	if names, err := m.runs.names(); err != nil || len(names) != 0 {
		t.Errorf("records %v, %v", names, err)
	}
}

// dialling is a session that waits for its supervisor.
func dialling(t *testing.T, dir string) process.Identity {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "session", "--dial", filepath.Join(dir, "s"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("a session does not end")
		}
	})
	id, err := process.Observe(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
