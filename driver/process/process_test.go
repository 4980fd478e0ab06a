// SPDX-License-Identifier: MPL-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func start(t *testing.T) (*exec.Cmd, Identity) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := Observe(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

// S10: a pid with another start time or of another boot is not our process, and is
// neither held nor signalled.
func TestS10RecycledPID(t *testing.T) {
	cmd, id := start(t)
	for name, other := range map[string]Identity{
		"start time": {PID: id.PID, Start: id.Start + 1, Boot: id.Boot},
		"boot":       {PID: id.PID, Start: id.Start, Boot: "00000000-0000-0000-0000-000000000000"},
		"no boot":    {PID: id.PID, Start: id.Start},
		"zero":       {},
	} {
		if other.Alive() {
			t.Errorf("%s: taken for ours", name)
		}
		if h, err := Open(other); !errors.Is(err, ErrGone) {
			t.Errorf("%s: opened %v, %v", name, h, err)
		}
	}
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Fatalf("the innocent process was touched: %v", err)
	}
}

func TestHandleWaitAndSignal(t *testing.T) {
	cmd, id := start(t)
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	select {
	case <-h.Done():
		t.Fatal("a living process counts as ended")
	default:
	}
	if err := h.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if id.Alive() {
		t.Fatal("alive after its end")
	}
	if err := h.Signal(unix.SIGKILL); err != nil {
		t.Fatalf("signal after the end: %v", err)
	}
}

func TestWaitSeesTheEnd(t *testing.T) {
	cmd, id := start(t)
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	done := h.Done()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	<-done
}

func TestZombieIsGone(t *testing.T) {
	cmd, id := start(t)
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_ = cmd.Process.Kill()
	<-h.Done() // ended, not yet reaped
	if id.Alive() {
		t.Fatal("a zombie counts as alive")
	}
	if _, err := Observe(id.PID); !errors.Is(err, ErrGone) {
		t.Fatalf("observe a zombie: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	self, _ := os.ReadFile("/proc/self/stat")
	f.Add(self)
	f.Add([]byte("1 (a) b) c) S 1 1 1"))
	f.Add([]byte(""))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _, _ = parseStat(text) })
}
