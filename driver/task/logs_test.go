// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
)

// fifos are a task's logs as Nomad makes them.
func (n *node) fifos(request *task.Request) (stdout, stderr string) {
	n.t.Helper()
	stdout = filepath.Join(n.dir, "."+request.TaskName+".stdout.fifo")
	stderr = filepath.Join(n.dir, "."+request.TaskName+".stderr.fifo")
	if err := errors.Join(unix.Mkfifo(stdout, 0o600), unix.Mkfifo(stderr, 0o600)); err != nil {
		n.t.Fatal(err)
	}
	request.StdoutPath, request.StderrPath = stdout, stderr
	return stdout, stderr
}

func openReader(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// N3, NMD-08: the desktop's output is the task's log, also after another driver took
// over, because the session itself holds the FIFO.
func TestN3Logs(t *testing.T) {
	n := newNode(t)
	request := n.request("talker")
	stdout, stderr := n.fifos(&request)
	lines := bufio.NewScanner(openReader(t, stdout))
	openReader(t, stderr)
	request.Spec.Command = "sh"
	request.Spec.Args = []string{"-c", "while echo tick; do sleep 0.2; done"}
	k := n.start(request)
	awaitLine := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the log ended before a line with %q: %v", want, lines.Err())
	}
	awaitLine("tick")
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	n.restart()
	if err := n.Recover(t.Context(), k.View().ID, state); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		awaitLine("tick")
	}
}

// DSP-17: a log that nobody reads any more never freezes the desktop.
func TestDSP17UnreadLog(t *testing.T) {
	n := newNode(t)
	request := n.request("muted")
	stdout, stderr := n.fifos(&request)
	openReader(t, stdout) // held open and never read
	openReader(t, stderr)
	k := n.start(request)
	// Each picture is a viewer connection about which Xvnc writes a few hundred bytes:
	// together several times what the FIFO holds.
	for range 150 {
		if _, err := client(k.View()).Screenshot(t.Context(), control.ScreenshotRequest{Scale: 0.1}); err != nil {
			t.Fatal(err)
		}
	}
}

// Checklist 71, NMD-07, X38: a FIFO that is not there, has no reader, or is not the one
// Nomad made fails the start in words and without a hang.
func TestNMD07UnusableLogs(t *testing.T) {
	n := newNode(t)
	for name, spoil := range map[string]func(path string) error{
		"missing": os.Remove,
		"symlink": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"hard link":  func(path string) error { return os.Link(path, path+".second") },
		"open mode":  func(path string) error { return os.Chmod(path, 0o666) },
		"other user": func(path string) error { return os.Chown(path, 1234, 1234) },
		"a file":     func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			request := n.request("logless-" + strings.ReplaceAll(name, " ", "-"))
			stdout, _ := n.fifos(&request)
			if name != "missing" {
				openReader(t, stdout)
			}
			if err := spoil(stdout); err != nil {
				t.Fatal(err)
			}
			k, err := n.Start(t.Context(), request)
			if err == nil {
				n.endWithTest(k)
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), "task log") {
				t.Fatalf("error %v", err)
			}
		})
	}
	t.Run("no reader", func(t *testing.T) {
		request := n.request("unread")
		n.fifos(&request)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := n.Start(ctx, request)
		if err == nil || !task.Transient(err) || !strings.Contains(err.Error(), "nobody reads") {
			t.Fatalf("error %v", err)
		}
	})
}
