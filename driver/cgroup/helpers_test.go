// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary play the processes of a desktop. Each begins when its standard input says so, so
// that it is in its group before it does anything.
func TestMain(m *testing.M) {
	if role := os.Getenv("CGROUP_ROLE"); role != "" {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

func play(role string) int {
	switch role {
	case "idle":
		fmt.Println("here")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "eat":
		var eaten [][]byte
		for range 256 {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			eaten = append(eaten, block)
		}
		fmt.Println("ate", len(eaten))
	case "spin":
		fmt.Println("here")
		// Of its own time: a busy machine may give a process little of 50 ms on the clock.
		for end := userTime() + 50*time.Millisecond; userTime() < end; {
		}
		fmt.Println("spun")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return 0
}

// userTime is what this process has used, see getrusage(2).
func userTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano())
}

// proc is a process that a test started.
type proc struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, cmd *exec.Cmd) *proc {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
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
	return &proc{t, cmd, in, bufio.NewReader(out)}
}

// startRole starts a role and puts it into the group before it begins.
func startRole(t *testing.T, role string, g *Group) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CGROUP_ROLE="+role)
	p := start(t, cmd)
	p.join(g)
	return p
}

// startShell runs a script that begins with `read`, in the group.
func startShell(t *testing.T, script string, g *Group) *proc {
	t.Helper()
	p := start(t, exec.Command("/bin/sh", "-c", "read start; "+script))
	p.join(g)
	return p
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

func (p *proc) join(g *Group) {
	p.t.Helper()
	if err := g.Add(p.pid()); err != nil {
		p.t.Fatal(err)
	}
	if _, err := fmt.Fprintln(p.in, "start"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proc) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read from process: %v", err)
	}
	return strings.TrimSpace(line)
}

// testTree is a tree of this machine's real hierarchies beneath a group that only this test uses.
func testTree(t *testing.T, host Host) *Tree {
	t.Helper()
	parent := fmt.Sprintf("/botscreen-test-%d", os.Getpid())
	tree, err := Open(host, parent)
	if err != nil {
		t.Skipf("no cgroups here: %v", err)
	}
	t.Cleanup(func() {
		for _, m := range tree.mounts {
			_ = eachGroup(filepath.Join(m.Dir, parent), os.Remove)
		}
	})
	return tree
}

// needControllers skips a test where the kernel gives groups of ours none: in a container on
// cgroup v2 whose top group has processes.
func needControllers(t *testing.T, tree *Tree) {
	t.Helper()
	if !tree.V2() {
		return
	}
	if err := inhabited(tree.mounts[0].Dir); err != nil {
		t.Skipf("no group has controllers here: %v", err)
	}
}

func mustCreate(t *testing.T, tree *Tree, name string, l Limits) *Group {
	t.Helper()
	g, err := tree.Create(name, l)
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		t.Skipf("cannot make cgroups here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil {
			t.Errorf("clean up: %v", err)
		}
		if err := g.Remove(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return g
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// unifiedHost shows only the unified hierarchy of this machine, which on a hybrid one is real but has no controllers.
func unifiedHost(t *testing.T) Host {
	t.Helper()
	mounts, err := Host{}.Mounts()
	if err != nil {
		t.Skip(err)
	}
	for _, m := range mounts {
		if m.V2 {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "self"), 0o755); err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("36 35 0:30 %s %s rw - cgroup2 cgroup2 rw\n", m.Root, m.Dir)
			if err := os.WriteFile(filepath.Join(dir, "self/mountinfo"), []byte(line), 0o644); err != nil {
				t.Fatal(err)
			}
			return Host{ProcFS: dir}
		}
	}
	t.Skip("this machine has no unified hierarchy mounted")
	return Host{}
}

// eachHost runs a test on every kind of hierarchy that this machine has: its own, and the unified one by itself.
func eachHost(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Run("own", func(t *testing.T) { test(t, testTree(t, Host{})) })
	t.Run("unified", func(t *testing.T) { test(t, testTree(t, unifiedHost(t))) })
}
