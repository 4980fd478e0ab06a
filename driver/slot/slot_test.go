// SPDX-License-Identifier: MPL-2.0

package slot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary play a second process: `SLOT_HOLD=<dir> SLOT_NAME=<name>` takes the slot, says
// so, and keeps it until its standard input closes.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SLOT_HOLD"); dir != "" {
		os.Exit(hold(dir, os.Getenv("SLOT_NAME")))
	}
	os.Exit(m.Run())
}

func hold(path, name string) int {
	dir, err := Open(path)
	if err == nil {
		_, err = dir.Block(name)
	}
	fmt.Println("held", err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

// startHolder starts a process that holds the slot.
func startHolder(t *testing.T, dir, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLOT_HOLD="+dir, "SLOT_NAME="+name)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "held <nil>" {
		t.Fatalf("holder said %q, %v", line, err)
	}
	return cmd
}

func privateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func openDir(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(privateDir(t), "node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestSlotIsFreedByTheHoldersDeath(t *testing.T) {
	d := openDir(t)
	holder := startHolder(t, d.Path(), "a")
	if _, err := d.Try("a"); !errors.Is(err, ErrHeld) {
		t.Fatalf("Try on another process's slot: %v, want ErrHeld", err)
	}
	if held, err := d.Held("a"); err != nil || !held {
		t.Fatalf("Held = %v, %v, want true", held, err)
	}
	gone := make(chan error, 1)
	go func() { gone <- d.Gone("a") }()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := d.Wait(ctx, "a")
	if err != nil {
		t.Fatalf("after kill -9 of the holder: %v", err)
	}
	s.Release()
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
}

func TestWaitGivesUpWithTheCauseAndLeavesTheSlotFree(t *testing.T) {
	d := openDir(t)
	first, err := d.Try("a")
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(context.Background())
	result := make(chan error, 1)
	go func() {
		_, err := d.Wait(ctx, "a")
		result <- err
	}()
	cancel(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Fatalf("got %v, want the context's cause", err)
	}
	first.Release()
	// The abandoned thread takes the slot and lets it go: the next one gets it all the same.
	s, err := d.Wait(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
}

func TestSlotKeepsWhatWasSet(t *testing.T) {
	d := openDir(t)
	s, err := d.Try("a")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	for _, text := range []string{"123456", "7"} {
		if err := s.Set([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read("a", 16); err != nil || string(got) != text {
			t.Fatalf("Read = %q, %v, want %q", got, err, text)
		}
	}
	if got, _ := d.Read("a", 0); len(got) != 0 {
		t.Fatalf("Read with limit 0 = %q", got)
	}
}

// A child that outlives us must not keep the lock.
func TestSlotIsNotInherited(t *testing.T) {
	d := openDir(t)
	s, err := d.Try("a")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Wait() }()
	s.Release()
	again, err := d.Try("a")
	if err != nil {
		t.Fatalf("with a child alive: %v", err)
	}
	again.Release()
}

func TestX6OpenRefusesWhatOthersControl(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"link": func(p string) error { return os.Symlink(t.TempDir(), p) },
		"link to a private directory": func(p string) error {
			return errors.Join(os.Mkdir(p+".elsewhere", 0o700), os.Symlink(filepath.Base(p)+".elsewhere", p))
		},
		"file":      func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"open mode": func(p string) error { return errors.Join(os.Mkdir(p, 0o755), os.Chmod(p, 0o755)) },
		"foreign owner": func(p string) error {
			if os.Geteuid() != 0 {
				t.Skip("needs root to give a directory away")
			}
			return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 1001, 1001))
		},
		"writable parent": func(p string) error { return os.Chmod(filepath.Dir(p), 0o777|fs.ModeSticky) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(privateDir(t), "node")
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			if d, err := Open(path); err == nil {
				d.Close()
				t.Fatal("opened")
			}
		})
	}
}

func TestSubHasTheSameRules(t *testing.T) {
	d := openDir(t)
	sub, err := d.Sub("displays")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	info, err := os.Stat(filepath.Join(d.Path(), "displays"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode %v, %v, want 0700", info.Mode(), err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(d.Path(), "planted")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"planted", "..", ".", "", "a/b", "a\x00b"} {
		if sub, err := d.Sub(name); err == nil {
			sub.Close()
			t.Errorf("Sub(%q) opened", name)
		}
		if s, err := d.Try(name); err == nil {
			s.Release()
			t.Errorf("Try(%q) took it", name)
		}
	}
}
