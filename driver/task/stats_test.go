// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"testing"

	"github.com/botscreen/botscreen/shared/control"
)

// Issue 7: a supervisor counts what happens to its screen, and reads what it uses without a
// right to anything.
func TestStatsOfAScreen(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("counted"))
	c := client(k.View())
	for range 2 {
		if _, err := c.Take(t.Context(), control.TakeRequest{Viewer: "ann"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Screenshot(t.Context(), control.ScreenshotRequest{}); err == nil {
			t.Error("a picture under a person")
		}
		if _, err := c.Release(t.Context(), control.ReleaseRequest{Viewer: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Sleep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := stats.Counts; got.StartNs <= 0 || got.Wakes != 1 || got.WakeNs <= 0 || got.Takeovers != 2 || got.HandBacks != 2 || got.Refusals != 2 {
		t.Errorf("counted %+v", got)
	}
	if stats.Namespace != "default" {
		t.Errorf("namespace %q", stats.Namespace)
	}
	if usage, err := k.Usage(t.Context()); err != nil {
		t.Logf("this node does not measure screens: %v", err)
	} else if stats.Processes < 5 || stats.MemoryBytes < 10<<20 || stats.MemoryBytes > 2*usage.Memory.Usage || stats.CPUUserNs+stats.CPUSystemNs == 0 {
		t.Errorf("measured %+v, the driver %+v", stats, usage.Memory)
	}
}
