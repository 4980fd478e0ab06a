// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// DOC-01: in a container that is full of processes nothing is taken for dead. A command is
// refused in words and at once, the picture still comes, and when there is room again
// everything goes on.
func TestDOC01FullOfProcesses(t *testing.T) {
	m := newManaged(t)
	request := m.request()
	request.Limits.PidsMax = 150
	k, err := m.Start(bounded(t), request)
	must(t, err)
	t.Cleanup(func() { _ = k.Destroy(bounded(t), true) })
	client := control.NewClient(control.Unix(k.View().OperatorSocket))
	defer client.Close()

	ctx, leave := context.WithCancel(bounded(t))
	defer leave()
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() { // a shell that forks until it cannot
		defer close(ended)
		_, _ = k.Exec(ctx, control.ExecRequest{Argv: []string{"sh", "-c", `
			sh -c 'while :; do sleep 300 & done' 2>/dev/null
			echo full
			while :; do sleep 300; done 2>/dev/null`}}, strings.NewReader(""), in, io.Discard, nil)
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "full" {
		t.Fatalf("it is not full: %q", lines.Text())
	}
	began := time.Now()
	result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "Cannot run the command") || !strings.Contains(err.Error(), "processes") || took > limit/3 {
		t.Errorf("a command in a full container: %+v, %v, after %s", result, err, took)
	}
	if shot, err := client.Screenshot(bounded(t), control.ScreenshotRequest{}); err != nil || len(shot.Data) < 1000 {
		t.Errorf("a picture of a full container: %d bytes, %v", len(shot.Data), err)
	}
	if view := k.View(); !view.Running {
		t.Errorf("it counts as dead: %+v", view)
	}
	leave() // its processes end with the command
	<-ended
	for end := time.Now().Add(limit); ; {
		result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
		if err == nil && result.ExitCode == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing runs although there is room: %+v, %v", result, err)
		}
	}
}
