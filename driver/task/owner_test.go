// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// P2: what runs on the host goes on to be looked at, used and stopped there after the node
// has ceased to allow that, and only a new start is refused (P1).
func TestP2RecordedOwner(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("owned"))
	v := k.View()
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	n.settings.AllowHost, n.settings.Order = false, []screen.Isolation{screen.Docker}
	again := n.recovered(v.ID, state)
	n.endWithTest(again)
	if got := again.View(); !got.Running || got.SessionPID != v.SessionPID {
		t.Fatalf("recovered %+v, it was %+v", got, v)
	}
	if result, out := run(t, again, "exit 7"); result.ExitCode != 7 {
		t.Errorf("exec: %+v %s", result, out)
	}
	if shot, err := client(again.View()).Screenshot(t.Context(), control.ScreenshotRequest{Thumbnail: true}); err != nil || len(shot.Data) < 500 {
		t.Errorf("a thumbnail of %d bytes, %v", len(shot.Data), err)
	}
	if other, err := n.Start(t.Context(), n.request("new")); err == nil {
		n.endWithTest(other)
		t.Error("a new screen started on the host")
	} else if reason := task.Explain(err); reason == "" {
		t.Errorf("the refusal says nothing: %v", err)
	}
	if err := again.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)
}
