// SPDX-License-Identifier: MPL-2.0

// Package tasktest is what the tests of the driver's tasks share, in each isolation.
package tasktest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
)

// AwaitEvent is the next event of the driver's with these words.
func AwaitEvent(ctx context.Context, t *testing.T, m *task.Manager, words string) (event task.Event) {
	t.Helper()
	found := errors.New("found")
	err := m.Events().Follow(ctx, func(e task.Event) error {
		if event = e; strings.Contains(e.Message, words) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Fatalf("no event %q: %v", words, err)
	}
	return event
}

// StarveSession has the kernel take a screen's session, whose memory is bounded, and returns when
// the screen has ended; the exit has to say so. The error is that of choosing the session.
func StarveSession(ctx context.Context, t *testing.T, k *task.Task) error {
	t.Helper()
	// What takes the memory has been started, and has a score of its own, before the session
	// is the first to be chosen.
	in, letGo := io.Pipe()
	out, said := io.Pipe()
	argv := []string{"sh", "-c", "echo here; read go; echo 0 >/proc/self/oom_score_adj; exec tail /dev/zero"}
	go func() {
		_, err := k.Exec(ctx, control.ExecRequest{Argv: argv}, in, said, io.Discard, nil)
		_ = said.CloseWithError(err)
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	if err := process.ScoreOOM(k.View().SessionPID, 1000); err != nil {
		return err
	}
	if _, err := io.WriteString(letGo, "go\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.Done():
	case <-ctx.Done():
		t.Fatal("the screen does not end")
	}
	if exit := k.Exit(); !exit.OOM || exit.Code == 0 || !strings.HasPrefix(exit.Err, "out of memory: ") {
		t.Errorf("exit %+v", exit)
	}
	return nil
}
