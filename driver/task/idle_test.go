// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Issue 7: a driver process without an agent may end as long as no screen is its own, be it one
// that another process has started. One that has ended needs nobody: how is on disk.
func TestIdle(t *testing.T) {
	n := newNode(t)
	if !n.Idle() {
		t.Error("not idle without any screen")
	}
	k := n.start(n.request("sole"))
	if n.Idle() {
		t.Error("idle with a screen")
	}
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	n.restart()
	if n.Idle() {
		t.Error("idle with a screen that nobody has recovered yet")
	}
	again := n.recovered(k.View().ID, state)
	n.endWithTest(again)
	if err := again.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !n.Idle() {
		t.Error("not idle after the end of the screen")
	}
}
