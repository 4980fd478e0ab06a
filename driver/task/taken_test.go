// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// D5, issue 7: a screen that got its second number, because somebody took the first in the
// last moment, is as good as any: it says its display, stops when it is asked to, and its end
// is its own. The squatter is there between the intent's record and the X server, which is
// as long as two processes take to start.
func TestD5NumberTakenInTheLastMoment(t *testing.T) {
	n := newNode(t)
	for range 5 {
		squatted := make(chan net.Listener, 1)
		request := n.request("late")
		go func() { squatted <- squat(n, request) }()
		k := n.start(request)
		var squatter net.Listener
		select {
		case squatter = <-squatted:
		case <-time.After(30 * time.Second):
			t.Fatal("no record of a start was seen")
		}
		v := k.View()
		if squatter == nil || squatter.Addr().String() == fmt.Sprintf("@/tmp/.X11-unix/X%d", v.Display) {
			t.Log("the X server was faster")
			if err := k.Destroy(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			continue
		}
		defer squatter.Close()
		status, err := client(v).Status(t.Context())
		if err != nil || status.Display != fmt.Sprintf(":%d", v.Display) {
			t.Errorf("status %+v, %v", status, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := client(v).Stop(ctx, control.StopRequest{}); err != nil {
			t.Errorf("stop: %v", err)
		}
		await(t, "the end", k.Done())
		if got := k.Exit(); got.Code != 0 || got.Err != "" {
			t.Errorf("it ended as %+v", got)
		}
		return
	}
	t.Skip("the X server was faster each time")
}

// squat binds the abstract socket of the first number that the start has chosen; nil when it
// was too late for that.
func squat(n *node, request task.Request) net.Listener {
	path := filepath.Join(n.settings.StateDir, "runs", screen.ID{Namespace: "default", Profile: request.Spec.Profile}.Hash()+".json")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var r struct {
			TaskID  task.ID `json:"task_id"`
			Display int     `json:"display"`
		}
		text, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(text, &r) != nil || r.TaskID != request.TaskID {
			continue
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@/tmp/.X11-unix/X%d", r.Display)})
		if err != nil {
			return nil
		}
		return l
	}
	return nil
}
