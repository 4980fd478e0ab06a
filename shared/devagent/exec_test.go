// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

func TestExecWithTerminalAndResize(t *testing.T) {
	a, alloc := start(t, "tty", "exec sleep 1000", "")
	sizes := make(chan api.TerminalSize, 1)
	sizes <- api.TerminalSize{Height: 33, Width: 99}
	in, typing := io.Pipe()
	out := &watchedBuffer{want: "33 99", seen: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		code, err := a.Client.Allocations().Exec(t.Context(), alloc, "t", true,
			[]string{"sh", "-c", "until [ \"$(stty size)\" = '33 99' ]; do :; done; stty size; read x; echo got $x >&2; exit 5"}, in, out, io.Discard, sizes, nil)
		if code != 5 {
			err = errors.Join(err, fmt.Errorf("exit code %d", code))
		}
		done <- err
	}()
	<-out.seen
	if _, err := typing.Write([]byte("word\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// One stream, with the terminal's line ends, and what was typed echoed.
	if got := out.String(); !strings.Contains(got, "33 99\r\n") || !strings.Contains(got, "word\r\n") || !strings.Contains(got, "got word\r\n") {
		t.Errorf("got %q", got)
	}
}

// watchedBuffer closes seen when it holds the wanted text.
type watchedBuffer struct {
	bytes.Buffer
	want string
	seen chan struct{}
	done bool
}

func (b *watchedBuffer) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if !b.done && strings.Contains(b.String(), b.want) {
		b.done = true
		close(b.seen)
	}
	return n, err
}

func TestExecBinaryRoundTrip(t *testing.T) {
	a, alloc := start(t, "cat", "exec sleep 1000", "")
	blob := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0x80}, 200_000)
	var out bytes.Buffer
	code, err := a.Client.Allocations().Exec(t.Context(), alloc, "t", false, []string{"cat"}, bytes.NewReader(blob), &out, io.Discard, nil, nil)
	if err != nil || code != 0 || !bytes.Equal(out.Bytes(), blob) {
		t.Errorf("code %d, error %v, %d bytes of %d", code, err, out.Len(), len(blob))
	}
}

// NMD-21, and the refusals in Nomad's words.
func TestExecRefusals(t *testing.T) {
	a, alloc := start(t, "once", "exec sleep 1000", "")
	exec := func(alloc *api.Allocation, task string, command ...string) error {
		_, err := a.Client.Allocations().Exec(t.Context(), alloc, task, false, command, strings.NewReader(""), io.Discard, io.Discard, nil, nil)
		return err
	}
	unknown := *alloc
	unknown.ID = "00000000-0000-0000-0000-000000000000"
	for want, err := range map[string]error{
		`Unknown allocation "00000000-0000-0000-0000-000000000000"`: exec(&unknown, "t", "true"),
		`unknown task name "x"`:    exec(alloc, "x", "true"),
		`command is not present`:   exec(alloc, "t"),
		`no such file or director`: exec(alloc, "t", "/nonexistent/program"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, _, err := a.Client.Jobs().Deregister("once", false, nil); err != nil {
		t.Fatal(err)
	}
	// In a loop while the task stops: an error of a known kind, or a command that ran.
	for {
		err := exec(alloc, "t", "true")
		if err != nil && strings.Contains(err.Error(), `task "t" is not running.`) {
			break
		}
		if err != nil && !strings.Contains(err.Error(), "task is not running") && !strings.Contains(err.Error(), "task not found") {
			t.Fatalf("got %v", err)
		}
	}
}

func readLog(t *testing.T, a *devagenttest.Agent, alloc *api.Allocation, origin string, offset int64) string {
	t.Helper()
	// The reader closes it.
	cancel := make(chan struct{})
	frames, errs := a.Client.AllocFS().Logs(alloc, false, "t", "stdout", origin, offset, cancel, nil)
	r := api.NewFrameReader(frames, errs, cancel)
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogsWithOffsetAndFollow(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "go")
	a, alloc := start(t, "logs", "echo one; mkfifo "+fifo+"; read x < "+fifo+"; echo two; exec sleep 1000", "")

	cancel := make(chan struct{})
	frames, errs := a.Client.AllocFS().Logs(alloc, true, "t", "stdout", "start", 0, cancel, nil)
	next := func(want string) {
		t.Helper()
		text := ""
		for !strings.Contains(text, want) {
			select {
			case f := <-frames:
				text += string(f.Data)
				if f.File != "alloc/logs/t.stdout.0" || f.Offset == 0 {
					t.Errorf("frame of %q at %d", f.File, f.Offset)
				}
			case err := <-errs:
				t.Fatal(err)
			case <-time.After(30 * time.Second):
				t.Fatalf("no %q; got %q", want, text)
			}
		}
	}
	next("one\n")
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	next("two\n")
	close(cancel)

	for _, c := range []struct {
		origin string
		offset int64
		want   string
	}{{"start", 0, "one\ntwo\n"}, {"start", 4, "two\n"}, {"start", 100, ""}, {"end", 4, "two\n"}, {"end", 100, "one\ntwo\n"}, {"end", 0, ""}} {
		if got := readLog(t, a, alloc, c.origin, c.offset); got != c.want {
			t.Errorf("origin %s offset %d: got %q, want %q", c.origin, c.offset, got, c.want)
		}
	}
	plain := rawGet(t, a, "/v1/client/fs/logs/"+alloc.ID+"?task=t&type=stdout&plain=true")
	if plain.body != "one\ntwo\n" || plain.status != 200 {
		t.Errorf("plain: %+v", plain)
	}
	for query, want := range map[string]answer{
		"task=x&type=stdout":               {400, `unknown task name "x"`},
		"type=stdout":                      {400, "must provide task name"},
		"task=t&type=both":                 {400, "must provide log type (stdout/stderr)"},
		"task=t&type=stdout&origin=middle": {400, "origin must be start or end"},
	} {
		if got := rawGet(t, a, "/v1/client/fs/logs/"+alloc.ID+"?"+query); got != want {
			t.Errorf("%s: got %+v, want %+v", query, got, want)
		}
	}
}
