// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Daemons leave their process group and session, ignore TERM and HUP, and outlive their parent (S9, DSP-16).
func TestDSP16KillFindsDaemons(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		p := startShell(t, `trap "" TERM HUP; (setsid sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 1000; done' &) ; echo main; exec cat`, g)
		lines := []string{p.line(), p.line()}
		daemon := strings.TrimSpace(strings.ReplaceAll(strings.Join(lines, " "), "main", ""))
		if err := g.Kill(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		if pids, err := g.Procs(); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
		if stat, err := os.ReadFile("/proc/" + daemon + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("daemon %s lives: %s", daemon, stat)
		}
	})
}

// Processes that fork faster than they can be listed.
func TestX35KillBeatsAForkBomb(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{PidsMax: 40})
		// Bounded for hierarchies without a limit: each of the twelve replaces itself for ever.
		p := startShell(t, `hop() { while :; do sh -c 'exit 0' 2>/dev/null; done; }
			for i in 1 2 3 4 5 6 7 8 9 10 11 12; do hop & done; echo bombing; exec cat`, g)
		if got := p.line(); got != "bombing" {
			t.Fatal(got)
		}
		if err := g.Kill(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		if pids, err := g.Procs(); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
	})
}

// A bomb has more processes than the one who ends it may have files.
func TestX35MoreProcessesThanFiles(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		p := startShell(t, `i=0; while [ $i -lt 600 ]; do sleep 1000 & i=$((i+1)); done; echo armed; exec cat`, g)
		if got := p.line(); got != "armed" {
			t.Fatal(got)
		}
		fewFiles(t, 300)
		if err := g.Kill(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		if pids, err := g.Procs(); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
	})
}

// fewFiles lets this process have so many open files, until the test ends.
func fewFiles(t *testing.T, most uint64) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
}

func TestKillOfAFrozenGroup(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		if g.with("freezer") == nil {
			t.Skip("no freezer here")
		}
		p := startRole(t, "idle", g)
		p.line()
		if err := g.Freeze(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := g.Kill(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Wait()
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Errorf("ended by %v", p.cmd.ProcessState)
		}
	})
}

// Kernels before 5.14 and machines without a freezer: signals and a limit of no forks.
func TestKillWithoutFreezer(t *testing.T) {
	tree := testTree(t, Host{})
	if tree.V2() {
		t.Skip("v1 only")
	}
	for i, m := range tree.mounts {
		if m.Has("freezer") {
			tree.mounts = append(tree.mounts[:i:i], tree.mounts[i+1:]...)
			break
		}
	}
	g := mustCreate(t, tree, "bot-1", Limits{})
	if g.with("freezer") != nil {
		t.Skip("the freezer shares a hierarchy")
	}
	p := startShell(t, `hop() { while :; do sh -c 'exit 0' 2>/dev/null; done; }; hop & hop & hop & echo on; exec cat`, g)
	p.line()
	if err := g.Kill(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Procs(); err != nil || len(pids) > 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
	if data, err := os.ReadFile(filepath.Join(g.with("pids").dir, "pids.max")); err != nil || strings.TrimSpace(string(data)) != "0" {
		t.Errorf("pids.max is %q, %v, want 0: nothing else stops the forks", data, err)
	}
}

// A pid that was listed, and belongs to a stranger by the time it is opened, is not signalled (S10): the second
// reading of the group no longer has it.
func TestS10RecycledPidIsNotSignalled(t *testing.T) {
	stranger := start(t, exec.Command("cat"))
	dir := t.TempDir()
	procs := filepath.Join(dir, "cgroup.procs")
	if err := syscall.Mkfifo(procs, 0o600); err != nil {
		t.Fatal(err)
	}
	// A FIFO answers each reading with the next text.
	go func() {
		for _, text := range []string{fmt.Sprintln(stranger.pid()), ""} {
			f, err := os.OpenFile(procs, os.O_WRONLY, 0)
			if err != nil {
				return
			}
			_, _ = f.WriteString(text)
			f.Close()
			waitForReader(procs)
		}
	}()
	g := &Group{name: "x", dirs: []placed{{Mount: Mount{Dir: dir, Root: "/"}, dir: dir}}}
	members, err := g.members()
	if err != nil || len(members) != 0 {
		t.Errorf("members %v, %v, want none", members, err)
	}
	if _, err := stranger.in.Write([]byte("alive\n")); err != nil {
		t.Fatal(err)
	}
	if got := stranger.line(); got != "alive" {
		t.Errorf("the stranger says %q", got)
	}
}

// A process that has ended and that nobody reaps is no reason to wait; some kernels list it still.
func TestS9ZombiesAreNotWaitedFor(t *testing.T) {
	zombie := start(t, exec.Command("true"))
	if _, err := zombie.out.ReadString('\n'); err == nil {
		t.Fatal("true wrote something")
	}
	const pPID, wExited, wNoWait = 1, 4, 0x01000000
	if _, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(zombie.pid()), 0, wExited|wNoWait, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprintln(zombie.pid())), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &Group{name: "x", dirs: []placed{{Mount: Mount{Dir: dir, Root: "/"}, dir: dir}}}
	members, err := g.members()
	if left := members.close(); err != nil || len(members) != 0 {
		t.Errorf("members %v (alive %v), %v, want none", members, left, err)
	}
}

// waitForReader returns once the FIFO has no reader left, so that the next text is not read together with this one.
func waitForReader(path string) {
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.ENXIO) {
			return
		}
		if err == nil {
			f.Close()
		}
	}
}

func TestKillNamesSurvivorsWhenItsTimeIsUp(t *testing.T) {
	p := start(t, exec.Command("cat"))
	// A group of plain files: nothing that is done to it ends anybody.
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.procs": fmt.Sprintln(p.pid()), "cgroup.kill": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &Group{name: "x", dirs: []placed{{Mount: Mount{Dir: dir, Root: "/", V2: true}, dir: dir}}}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("stop took too long")
	cancel(cause)
	err := g.Kill(ctx)
	var survivors *SurvivorsError
	if !errors.As(err, &survivors) || len(survivors.PIDs) != 1 || survivors.PIDs[0] != p.pid() || !errors.Is(err, cause) {
		t.Errorf("got %v, want survivor %d and the cause", err, p.pid())
	}
}
