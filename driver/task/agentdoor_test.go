// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// doorRecord is the record of a run in an alloc directory of its own.
func doorRecord(t *testing.T) (r *runRecord, shared string) {
	t.Helper()
	r = &runRecord{AllocDir: t.TempDir(), TaskName: "desk", AgentSocket: screen.AgentSocket{Mode: 0o660}}
	shared = filepath.Join(r.AllocDir, "alloc")
	if err := errors.Join(os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	return r, shared
}

// The agent's socket belongs to the first uid and the group of the job, can be reached
// however long its path is, is made anew by the next supervisor, and is gone with the run.
func TestX6AgentDoor(t *testing.T) {
	r, shared := doorRecord(t)
	if os.Geteuid() == 0 {
		r.AgentSocket.UIDs, r.AgentSocket.Group = []uint32{1234, 99}, "4321"
	}
	long := filepath.Join(r.AllocDir, strings.Repeat("long", 30))
	if err := errors.Join(os.Mkdir(long, 0o755), os.Rename(shared, filepath.Join(long, "alloc"))); err != nil {
		t.Fatal(err)
	}
	r.AllocDir, shared = long, filepath.Join(long, "alloc")
	for range 2 { // a supervisor and the next one
		door, err := r.openAgentDoor()
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(shared, "botscreen", "desk.sock"), &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Mode != unix.S_IFSOCK|0o660 || os.Geteuid() == 0 && (stat.Uid != 1234 || stat.Gid != 4321) {
			t.Errorf("mode %o of %d:%d", stat.Mode, stat.Uid, stat.Gid)
		}
		if err := unix.Stat(filepath.Join(shared, "botscreen"), &stat); err != nil || stat.Mode != unix.S_IFDIR|0o755 || int(stat.Uid) != os.Geteuid() {
			t.Errorf("its directory: mode %o of %d, %v", stat.Mode, stat.Uid, err)
		}
		listener, err := net.FileListener(door.listener)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := openDir(filepath.Join(shared, "botscreen"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/desk.sock", dir.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = dir.Close()
		_ = listener.Close()
		closeAll(door.files())
	}
	other := *r
	other.TaskName = "Other task/.."
	door, err := other.openAgentDoor()
	if err != nil || !strings.HasSuffix(door.name, ".sock") || strings.ContainsAny(door.name, " /") {
		t.Fatalf("%+v, %v", door, err)
	}
	closeAll(door.files())
	for _, gone := range []*runRecord{r, &other} {
		if err := gone.removeAgentDoor(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := r.removeAgentDoor(); err != nil {
		t.Error(err)
	}
}

// X6, X33: what a task of the allocation planted where the socket belongs fails the start
// in words, and nothing outside is touched.
func TestX33PlantedDoor(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(shared string) error{
		"link to a directory": func(shared string) error { return os.Symlink(outside, filepath.Join(shared, "botscreen")) },
		"dangling link": func(shared string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(shared, "botscreen"))
		},
		"file": func(shared string) error { return os.WriteFile(filepath.Join(shared, "botscreen"), nil, 0o644) },
		"directory for all": func(shared string) error {
			return errors.Join(os.Mkdir(filepath.Join(shared, "botscreen"), 0o755), os.Chmod(filepath.Join(shared, "botscreen"), 0o777))
		},
		"somebody's directory": func(shared string) error {
			return errors.Join(os.Mkdir(filepath.Join(shared, "botscreen"), 0o755), os.Chown(filepath.Join(shared, "botscreen"), 1234, 1234))
		},
		"link for the socket": func(shared string) error {
			return errors.Join(os.Mkdir(filepath.Join(shared, "botscreen"), 0o755), os.Symlink(outside, filepath.Join(shared, "botscreen", "desk.sock")))
		},
		"file for the socket": func(shared string) error {
			return errors.Join(os.Mkdir(filepath.Join(shared, "botscreen"), 0o755), os.WriteFile(filepath.Join(shared, "botscreen", "desk.sock"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "somebody's directory" && os.Geteuid() != 0 {
				t.Skip("needs root to give a directory away")
			}
			r, shared := doorRecord(t)
			if err := plant(shared); err != nil {
				t.Fatal(err)
			}
			door, err := r.openAgentDoor()
			var planted *PlantedError
			if !errors.As(err, &planted) || door != nil {
				t.Fatalf("%+v, %v", door, err)
			}
			if text := Explain(err); !strings.Contains(text, "The agent's socket cannot be made") && !strings.Contains(text, "the agent's socket cannot be made") || !strings.Contains(text, "botscreen") {
				t.Errorf("it says %q", text)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside: %v, %v", left, err)
			}
			if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("outside: %v, %v", info.Mode(), err)
			}
			// The end of the run leaves it alone, too.
			if err := r.removeAgentDoor(); err != nil && !errors.As(err, &planted) {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(shared, "botscreen")); err != nil {
				t.Errorf("what was planted: %v", err)
			}
		})
	}
}

// A group that the node does not know is a fault of the job, said before anything starts.
func TestAgentDoorGroup(t *testing.T) {
	var faults screen.Faults
	if _, _, err := doorOwner(screen.AgentSocket{Group: "no-such-group-here"}); !errors.As(err, &faults) || faults[0].Field != "agent_socket.group" {
		t.Errorf("%v", err)
	}
	if uid, gid, err := doorOwner(screen.AgentSocket{Group: "0", UIDs: []uint32{7, 8}}); uid != 7 || gid != 0 || err != nil {
		t.Errorf("%d:%d, %v", uid, gid, err)
	}
}
