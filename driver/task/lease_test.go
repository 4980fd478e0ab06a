// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// annotated waits for the task's event of that name and returns its annotations.
func annotated(t *testing.T, n *node, k *task.Task, name control.EventName, state screen.State) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var found map[string]string
	_ = n.Events().Follow(ctx, func(e task.Event) error {
		if e.TaskID == k.View().ID && e.Annotations["botscreen.event"] == string(name) && e.Annotations["botscreen.state"] == string(state) {
			found = e.Annotations
			return context.Canceled
		}
		return nil
	})
	if found == nil {
		t.Fatalf("no event %s in state %s", name, state)
	}
	return found
}

// X26, L11: the driver's own state knows of a lease: with the whole control directory
// gone under a person's hands, the next run's agent is refused and the epoch goes on.
// What the driver knows it has from events, and from a question where it missed them.
func TestX26ControlDirectoryLost(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("kept"))
	v := k.View()
	held, err := client(v).Take(t.Context(), control.TakeRequest{Viewer: "ann", Reason: screen.Distrust("a captcha")})
	if err != nil {
		t.Fatal(err)
	}
	taken := annotated(t, n, k, control.EventTaken, screen.Ready)
	if taken["botscreen.holder"] != "human" || taken["botscreen.epoch"] != fmt.Sprint(held.Epoch) || taken["botscreen.reason"] != "a captcha" {
		t.Errorf("the take's annotations: %v", taken)
	}
	if err := k.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil { // a job's stop goes over a person
		t.Fatal(err)
	}
	ended := annotated(t, n, k, control.EventState, screen.Stopped)
	if ended["botscreen.holder"] != "human" || ended["botscreen.epoch"] != fmt.Sprint(held.Epoch) {
		t.Errorf("the end's annotations: %v", ended)
	}
	files, err := filepath.Glob(filepath.Join(v.ControlDir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("control directory: %v, %v", files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	n.restart() // nothing is remembered but on disk
	k = n.start(n.request("kept"))
	now, err := client(k.View()).Lease(t.Context())
	if err != nil || now.Holder != "human" || now.Epoch < held.Epoch {
		t.Fatalf("%+v became %+v, %v", held, now, err)
	}
	_, err = client(k.View()).Screenshot(t.Context(), control.ScreenshotRequest{})
	if control.KindOf(err) != control.HumanHasControl {
		t.Errorf("screenshot: %v", err)
	}
	freed, err := client(k.View()).Release(t.Context(), control.ReleaseRequest{Force: true})
	if err != nil || freed.Epoch <= now.Epoch {
		t.Fatalf("%+v became %+v, %v", now, freed, err)
	}
	if _, err = client(k.View()).Screenshot(t.Context(), control.ScreenshotRequest{}); err != nil {
		t.Errorf("screenshot after the release: %v", err)
	}
}

// LSE-13: what changed while the driver was dead is what holds when it is back: its memory
// is older then, and has no say.
func TestLSE13OneAuthority(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("loyal"))
	v := k.View()
	taken, err := client(v).Take(t.Context(), control.TakeRequest{Viewer: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	annotated(t, n, k, control.EventTaken, screen.Ready)
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	n.restart() // the driver that heard of the take is gone
	freed, err := client(v).Release(t.Context(), control.ReleaseRequest{Viewer: "ann"})
	if err != nil || freed.Holder != "agent" || freed.Epoch != taken.Epoch+1 {
		t.Fatalf("%+v became %+v, %v", taken, freed, err)
	}
	if err := n.Recover(t.Context(), v.ID, state); err != nil {
		t.Fatal(err)
	}
	again, err := n.Get(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := client(again.View()).Lease(t.Context()); err != nil || now != freed {
		t.Errorf("%+v became %+v, %v", freed, now, err)
	}
}
