// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
)

// DSP-02: four times the driver and the supervisor die and the screen is started again.
// The number of desktops does not grow, and stop is true only when the tree is gone.
func TestDSP02FourRounds(t *testing.T) {
	n := newNode(t)
	var k *task.Task
	for round := range 4 {
		k = n.start(n.request("phoenix")) // the same alloc and task, another run
		v := k.View()
		servers := 0
		for _, pid := range processesOf(v.Account.UID) {
			if words := commandLine(pid); len(words) > 0 && filepath.Base(words[0]) == "Xvnc" {
				servers++
			}
		}
		if servers != 1 {
			t.Fatalf("round %d: %d X servers", round, servers)
		}
		if round < 3 {
			if err := syscall.Kill(v.SupervisorPID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			n.restart() // the driver that knew the task is gone
		}
	}
	if err := k.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(k.View())
}

// NMD-05: a task whose record was lost is found by what Nomad kept, not left running
// beside its successor.
func TestNMD05LostRecord(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("amnesia"))
	v := k.View()
	x := xserver(t, v)
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.settings.StateDir, "runs")); err != nil {
		t.Fatal(err)
	}
	again := n.recovered(v.ID, state)
	if got := xserver(t, again.View()); got != x {
		t.Errorf("X server %v became %v", x, got)
	}
	if err := again.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)
	if _, err := n.Get(v.ID); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("a destroyed task: %v", err)
	}
}

// NMD-18: whoever the desktop runs as can write its home; a user there is not fails by
// name, before anything starts.
func TestNMD18Users(t *testing.T) {
	n := newNode(t)
	for user, uid := range map[string]string{"nobody": "65534", "61999": "61999", "61998:44444": "61998"} {
		t.Run(user, func(t *testing.T) {
			request := n.request("as-" + uid)
			request.User = user
			k := n.start(request)
			result, out := run(t, k, "id -u; id -G; touch ~/mine && stat -c %u ~/mine")
			if fields := strings.Fields(out); result.ExitCode != 0 || len(fields) != 3 || fields[0] != uid || fields[2] != uid {
				t.Errorf("%+v %q", result, out)
			}
		})
	}
	request := n.request("as-nobody-knows")
	request.User = "nosuchuser"
	_, err := n.Start(t.Context(), request)
	if err == nil || task.Transient(err) || !strings.Contains(task.Explain(err), `user: "nosuchuser" is not a user of this node`) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.settings.StateDir, "data", "default", "as-nobody-knows")); err == nil {
		t.Error("a refused start made a home")
	}
}

// Issue 7: a driver that finds a damaged record goes on by what Nomad kept. What becomes of
// one where nobody kept anything is TestClearUnreadable.
func TestUnreadableRecord(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("scrambled"))
	v := k.View()
	x := xserver(t, v)
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(n.settings.StateDir, "runs", "*.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	if err := os.WriteFile(records[0], []byte("{\"v\":1,\"sess"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := n.recovered(v.ID, state)
	if got := xserver(t, again.View()); got != x {
		t.Errorf("X server %v became %v", x, got)
	}
	if err := again.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)
}
