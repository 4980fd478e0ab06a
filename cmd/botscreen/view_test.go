// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// X27: the socket is its user's alone, each connection is a stream of the reserved
// command that carries who the user is, and nothing is left behind.
func TestX27View(t *testing.T) {
	startAgent(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	runtime, err := os.MkdirTemp("", "bsv-") // short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	call(t, "run", "--detach", jobFile(t, "desk", "ada", "")).want(t, exitOK, "", "")
	awaitReady(t, "ada")
	call(t, "view", "--vnc", "nobody").want(t, exitNotFound, "", "no screen")

	for _, mode := range []string{"control", "watch"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, in := io.Pipe()
		args := []string{"view", "-vnc", "--json", "ada"}
		if mode == "watch" {
			args = append(args, "-watch")
		}
		ended := make(chan int, 1)
		var errs strings.Builder
		go func() {
			ended <- run(ctx, args, streams{in: strings.NewReader(""), out: in, errs: &errs})
			_ = in.Close()
		}()
		var said struct{ Screen, Socket, Mode string }
		if err := json.NewDecoder(out).Decode(&said); err != nil {
			t.Fatalf("%v, code %d, %s", err, <-ended, &errs)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		if said.Mode != mode || said.Screen != "desk/g/bot" || !strings.HasPrefix(said.Socket, runtime) {
			t.Errorf("%+v", said)
		}
		for path, want := range map[string]fs.FileMode{said.Socket: fs.ModeSocket | 0o600, filepath.Dir(said.Socket): fs.ModeDir | 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
			}
		}
		for range 2 {
			conn, err := net.Dial("unix", said.Socket)
			if err != nil {
				t.Fatal(err)
			}
			text := bufio.NewReader(conn)
			if line, err := text.ReadString('\n'); err != nil || line != mode+" 43\n" { // 32 bytes in base64
				t.Errorf("the hello was %q, %v", line, err)
			}
			if _, err := io.WriteString(conn, "pixels\n"); err != nil {
				t.Error(err)
			}
			if line, err := text.ReadString('\n'); err != nil || line != "pixels\n" {
				t.Errorf("got %q, %v", line, err)
			}
			_ = conn.Close()
		}
		cancel()
		if code := <-ended; code != exitOK || errs.String() != "" {
			t.Errorf("code %d: %s", code, &errs)
		}
		if _, err := os.Stat(filepath.Dir(said.Socket)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is still there: %v", err)
		}
	}
}

func TestViewSocketPath(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	_, err := openDoor()
	if err == nil || !strings.Contains(err.Error(), "longer than 107 bytes; set XDG_RUNTIME_DIR") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
