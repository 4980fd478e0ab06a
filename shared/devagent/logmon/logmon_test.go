// SPDX-License-Identifier: MPL-2.0

package logmon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is the collector when it is called so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "logmon" {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func command() []string { return []string{os.Args[0], "logmon"} }

func start(t *testing.T, dir string) (Spec, Process) {
	t.Helper()
	spec := Spec{Dir: dir, Task: "bot", MaxFiles: 2, MaxFileMB: 1}
	var p Process
	if err := Start(t.Context(), command(), spec, func(started Process) error { p = started; return nil }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return spec, p
}

// keep is for collectors that do not start.
func keep(Process) error { return errors.New("it was kept") }

// Issue 7: an agent that dies between the start of a collector and its record leaves none
// behind: the next agent's would share its FIFOs.
func TestEndsUnlessKept(t *testing.T) {
	var p Process
	refused := errors.New("disk full")
	err := Start(t.Context(), command(), Spec{Dir: t.TempDir(), Task: "bot", MaxFiles: 1, MaxFileMB: 1}, func(started Process) error {
		if p = started; !p.Alive() {
			t.Error("it did not wait for its record")
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatalf("start: %v", err)
	}
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-tick.C:
		case <-deadline:
			_ = p.Stop(context.Background())
			t.Fatal("a collector that nobody knows runs on")
		}
	}
}

func writer(t *testing.T, dir, stream string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, FIFO("bot", stream)), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// All that was written before the stop is in the files, over several runs of the
// task (the writer closes and another opens).
func TestCollectsUntilStopped(t *testing.T) {
	dir := t.TempDir()
	_, p := start(t, dir)
	for run := range 3 {
		w := writer(t, dir, Stdout)
		fmt.Fprintf(w, "run %d\n", run)
		_ = w.Close()
	}
	e := writer(t, dir, Stderr)
	fmt.Fprint(e, "no newline")
	_ = e.Close()
	if !p.Alive() {
		t.Fatal("the collector ended with the task")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "bot.stdout.0")); got != "run 0\nrun 1\nrun 2\n" {
		t.Errorf("stdout: %q", got)
	}
	if got := read(t, filepath.Join(dir, "bot.stderr.0")); got != "no newline" {
		t.Errorf("stderr: %q", got)
	}
	if p.Alive() {
		t.Error("alive after Stop")
	}
}

// A second collector goes on in the same file (NMD-08: after an agent's restart).
func TestGoesOnInTheSameFile(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"one\n", "two\n"} {
		_, p := start(t, dir)
		w := writer(t, dir, Stdout)
		fmt.Fprint(w, text)
		_ = w.Close()
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, filepath.Join(dir, "bot.stdout.0")); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
}

func rotating(t *testing.T, dir string, count int, limit int64) *rotator {
	t.Helper()
	d, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r := newRotator(d, "bot.stdout", count, limit)
	t.Cleanup(r.close)
	return r
}

func TestRotationKeepsWholeLinesAndNewestFiles(t *testing.T) {
	dir := t.TempDir()
	r := rotating(t, dir, 2, 10)
	for range 5 {
		r.write([]byte("1234567\n"))
	}
	r.write([]byte("a line longer than a file\n"))
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 2 {
		t.Fatalf("files: %v", names)
	}
	if got := read(t, names[0]) + read(t, names[1]); got != "ger than a file\n" {
		t.Errorf("got %q", got)
	}
	for _, name := range names {
		if info, _ := os.Stat(name); info.Size() > 10 {
			t.Errorf("%s has %d bytes, limit 10", name, info.Size())
		}
	}
}

func TestRotationLosesNothingWithinTheLimit(t *testing.T) {
	dir := t.TempDir()
	r := rotating(t, dir, 1000, 16)
	var want bytes.Buffer
	for i := range 100 {
		line := fmt.Appendf(nil, "line %d\n", i)
		want.Write(line)
		r.write(line)
	}
	var got bytes.Buffer
	for _, n := range r.present() {
		got.WriteString(read(t, filepath.Join(dir, fmt.Sprintf("bot.stdout.%d", n))))
	}
	if got.String() != want.String() {
		t.Errorf("got %q", got.String())
	}
}

// X6: what a task puts in place of a log file is not written to.
func TestPlantedFilesAreNotWritten(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	plant := map[string]func(path string) error{
		"symlink":  func(path string) error { return os.Symlink(victim, path) },
		"hardlink": func(path string) error { return os.Link(victim, path) },
		"fifo":     func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dir":      func(path string) error { return os.Mkdir(path, 0o700) },
	}
	for name, f := range plant {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(victim, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := f(filepath.Join(dir, "bot.stdout.0")); err != nil {
				t.Skip(err)
			}
			rotating(t, dir, 3, 100).write([]byte("secret\n"))
			if got := read(t, victim); got != "" {
				t.Errorf("the victim was written: %q", got)
			}
			if got := read(t, filepath.Join(dir, "bot.stdout.1")); got != "secret\n" {
				t.Errorf("next file: %q", got)
			}
		})
	}
}

func TestPlantedFIFOIsReplaced(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, FIFO("bot", Stdout))); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	info, err := os.Lstat(filepath.Join(dir, FIFO("bot", Stdout)))
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v: want a FIFO 0600", info.Mode(), err)
	}
}

func TestStartSaysWhy(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if err := Start(t.Context(), command(), Spec{Dir: missing, Task: "bot", MaxFiles: 1, MaxFileMB: 1}, keep); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("no directory: %v", err)
	}
	if err := Start(t.Context(), []string{"/nonexistent/logmon"}, Spec{Dir: t.TempDir(), Task: "bot", MaxFiles: 1, MaxFileMB: 1}, keep); err == nil {
		t.Error("no program: no error")
	}
	if err := Start(t.Context(), command(), Spec{Dir: t.TempDir(), Task: "bot"}, keep); err == nil || !strings.Contains(err.Error(), "it ended at once") {
		t.Errorf("bad spec: %v", err)
	}
}

// A recycled pid is not the collector (S10).
func TestAliveNeedsTheStartTime(t *testing.T) {
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is not alive")
	}
	for _, other := range []Process{
		{PID: self.PID, StartTime: self.StartTime + 1, Boot: self.Boot},
		{PID: self.PID, StartTime: self.StartTime, Boot: "another"},
		{}, {PID: -1},
	} {
		if other.Alive() {
			t.Errorf("%+v is alive", other)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := other.Stop(ctx); err != nil {
			t.Errorf("stop %+v: %v", other, err)
		}
		cancel()
	}
}
