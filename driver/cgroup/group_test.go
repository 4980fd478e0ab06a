// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLifeOfAGroup(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		p := startRole(t, "idle", g)
		if got := p.line(); got != "here" {
			t.Fatal(got)
		}
		pids, err := g.Procs()
		if err != nil || !slices.Equal(pids, []int{p.pid()}) {
			t.Fatalf("Procs = %v, %v, want %d", pids, err, p.pid())
		}
		again, err := tree.Open("bot-1")
		if err != nil || !slices.Equal(again.Dirs(), g.Dirs()) {
			t.Fatalf("Open: %v, %v, want %v", again, err, g.Dirs())
		}
		if names, err := tree.List(); err != nil || !slices.Equal(names, []string{"bot-1"}) {
			t.Errorf("List = %v, %v", names, err)
		}
		if _, err := tree.Create("bot-1", Limits{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Create over a living group: %v, want fs.ErrExist", err)
		}
		if err := g.Kill(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		// Not waited for yet: a zombie does not keep the group.
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			t.Errorf("second Remove: %v", err)
		}
		if _, err := tree.Open("bot-1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open after Remove: %v, want fs.ErrNotExist", err)
		}
		if pids, err := g.Procs(); err != nil || len(pids) != 0 {
			t.Errorf("Procs of a removed group: %v, %v", pids, err)
		}
		if err := g.Kill(within(t, time.Second)); err != nil {
			t.Errorf("Kill of a removed group: %v", err)
		}
	})
}

func TestCreateReplacesAnEmptyLeftover(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		old := mustCreate(t, tree, "bot-1", Limits{})
		if err := os.Mkdir(filepath.Join(old.Dirs()[0], "inner"), 0o755); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, tree, "bot-1", Limits{})
		if _, err := os.Stat(filepath.Join(old.Dirs()[0], "inner")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the old group's inner group: %v, want it gone", err)
		}
	})
}

func TestX42GroupNames(t *testing.T) {
	tree := &Tree{parent: "/", mounts: []Mount{{Dir: t.TempDir(), Root: "/", V2: true}}}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "-x", "Bot", "a\n", "a\x00", strings.Repeat("a", 129)} {
		if _, err := tree.Create(name, Limits{}); err == nil {
			t.Errorf("Create(%q) worked", name)
		}
		if _, err := tree.Open(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q): %v, want a refusal of the name", name, err)
		}
	}
}

func TestX35LimitsAreSetAndHold(t *testing.T) {
	tree := testTree(t, Host{})
	needControllers(t, tree)
	g := mustCreate(t, tree, "bot-1", Limits{MemoryBytes: 64 << 20, PidsMax: 3, CPUShares: 512})
	if weaker := g.Weaker(); len(weaker) > 0 {
		t.Fatalf("weaker: %v", weaker)
	}
	type limit struct{ controller, file, want string }
	limits := []limit{{"memory", "memory.limit_in_bytes", "67108864"}, {"pids", "pids.max", "3"}, {"cpu", "cpu.shares", "512"}}
	if tree.V2() {
		limits = []limit{{"memory", "memory.max", "67108864"}, {"pids", "pids.max", "3"}, {"cpu", "cpu.weight", "20"}}
	}
	for _, l := range limits {
		controller, file, want := l.controller, l.file, l.want
		data, err := os.ReadFile(filepath.Join(g.with(controller).dir, file))
		if err != nil || strings.TrimSpace(string(data)) != want {
			t.Errorf("%s: %q, %v, want %s", file, data, err, want)
		}
	}
	// A shell may have two children and no more; it gives up at the third.
	p := startShell(t, `exec 2>/dev/null; sleep 100 >&2 & sleep 100 >&2 & echo two; read go; sleep 100 >&2 & echo three`, g)
	if got := p.line(); got != "two" {
		t.Fatal(got)
	}
	stats, err := g.Stats()
	if err != nil || stats.Pids == nil || stats.Pids.Current != 3 || stats.Pids.Max != 3 {
		t.Errorf("pids %+v, %v, want 3 of 3", stats.Pids, err)
	}
	if _, err := p.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := p.out.ReadString('\n'); err != io.EOF {
		t.Errorf("a third child: %q, %v, want the shell to end", got, err)
	}
}

func TestN2OOMIsCounted(t *testing.T) {
	tree := testTree(t, Host{})
	needControllers(t, tree)
	g := mustCreate(t, tree, "bot-1", Limits{MemoryBytes: 48 << 20})
	if g.with("memory") == nil {
		t.Skip("no memory controller here")
	}
	if kills, err := g.OOMKills(); err != nil || kills != 0 {
		t.Fatalf("OOMKills = %d, %v, want 0", kills, err)
	}
	p := startRole(t, "eat", g)
	_ = p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("ended by %v, want the OOM killer", p.cmd.ProcessState)
	}
	if kills, err := g.OOMKills(); err != nil || kills != 1 {
		t.Errorf("OOMKills = %d, %v, want 1", kills, err)
	}
	stats, err := g.Stats()
	if err != nil || stats.Memory == nil || stats.Memory.Limit != 48<<20 || stats.Memory.MaxUsage < 40<<20 {
		t.Errorf("memory %+v, %v", stats.Memory, err)
	}
}

func TestStatsOfARunningGroup(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		p := startRole(t, "spin", g)
		p.line()
		if got := p.line(); got != "spun" {
			t.Fatal(got)
		}
		s, err := g.Stats()
		if err != nil || s.CPU == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		if s.CPU.Total < 10*time.Millisecond || s.CPU.User == 0 || s.CPU.Total > time.Minute {
			t.Errorf("CPU %+v after 50 ms of spinning", s.CPU)
		}
		// The kernel adds memory.stat up every two seconds only, so what RSS is now cannot be asked of it.
		if g.with("memory") != nil && g.refused["memory"] == nil && (s.Memory == nil || s.Memory.Usage == 0 || s.Memory.WorkingSet > s.Memory.Usage) {
			t.Errorf("memory %+v", s.Memory)
		}
	})
}

func TestFreezeAndThaw(t *testing.T) {
	eachHost(t, func(t *testing.T, tree *Tree) {
		g := mustCreate(t, tree, "bot-1", Limits{})
		if g.with("freezer") == nil {
			t.Skip("no freezer here")
		}
		p := startShell(t, `while read x; do echo $x; done`, g)
		if err := g.Freeze(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if frozen, err := g.with("freezer").frozen(); err != nil || !frozen {
			t.Fatalf("frozen %v, %v", frozen, err)
		}
		if _, err := p.in.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		// Frozen processes answer nothing; the answer comes with the thaw. (That none comes before cannot be
		// waited for; the kernel's own word above has to do.)
		if err := g.Thaw(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if got := p.line(); got != "hello" {
			t.Errorf("after the thaw: %q", got)
		}
	})
}

// asNobody runs f on a thread that the file system takes for uid 65534.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		_ = unix.Setfsuid(65534)
		f()
	}()
	<-done
}

func TestUnprivilegedIsATypedErrorInWords(t *testing.T) {
	tree := testTree(t, Host{})
	var err error
	asNobody(t, func() { _, err = tree.Create("bot-1", Limits{MemoryBytes: 1 << 20}) })
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("got %v, want an UnavailableError for permission", err)
	}
	if s := unavailable.Sentence(); !strings.Contains(s, "this process may not make cgroups") {
		t.Errorf("sentence %q", s)
	}
	if _, err := Open(Host{ProcFS: t.TempDir(), SysFS: t.TempDir()}, ""); !errors.As(err, &unavailable) {
		t.Errorf("no cgroup file system: %v", err)
	}
}

func TestReadOnlyCgroupsAreSaid(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	tree := &Tree{parent: "/", mounts: []Mount{{Dir: dir, Root: "/", V2: true}}}
	_, err := tree.Create("bot-1", Limits{})
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Sentence(), "read-only") {
		t.Errorf("got %v", err)
	}
}

// cgroups(7): the kernel passes controllers to no group below one that has processes, such as
// the top of what a container sees. The screen has a group all the same, and is told why that
// limits nothing.
func TestLimitsBelowInternalProcesses(t *testing.T) {
	tree := testTree(t, Host{})
	if !tree.V2() {
		t.Skip("needs a unified hierarchy with controllers")
	}
	needControllers(t, tree)
	box := mustCreate(t, tree, "box", Limits{MemoryBytes: 1 << 30})
	startRole(t, "idle", box).line()
	dir := box.Dirs()[0]
	inside := &Tree{parent: "/", mounts: []Mount{{Dir: dir, Root: "/", V2: true, Controllers: readControllers(dir)}}}
	g := mustCreate(t, inside, "bot-1", Limits{MemoryBytes: 1 << 30, PidsMax: 10, CPUShares: 100})
	weaker := g.Weaker()
	if len(weaker) != 3 {
		t.Fatalf("weaker %q, want all three limits", weaker)
	}
	for _, each := range weaker {
		if !strings.Contains(each, dir+" has processes of its own") {
			t.Errorf("%q does not say why", each)
		}
	}
	startRole(t, "idle", g).line()
	if stats, err := g.Stats(); err != nil || stats.CPU == nil || stats.Memory != nil {
		t.Errorf("%+v, %v: want what the kernel counts without controllers", stats, err)
	}
}

// Below a group that somebody made a thread root no process can be in a group of ours: that is
// said in words and no group is left, instead of a start that fails.
func TestThreadedParentIsSaid(t *testing.T) {
	tree := testTree(t, Host{})
	if !tree.V2() {
		t.Skip("needs a unified hierarchy with controllers")
	}
	needControllers(t, tree)
	box := mustCreate(t, tree, "box", Limits{})
	startRole(t, "idle", box).line()
	dir := box.Dirs()[0]
	if err := write(dir, "cgroup.subtree_control", "+pids"); err != nil {
		t.Fatal(err)
	}
	inside := &Tree{parent: "/", mounts: []Mount{{Dir: dir, Root: "/", V2: true, Controllers: readControllers(dir)}}}
	_, err := inside.Create("bot-1", Limits{PidsMax: 10})
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Sentence(), "threaded") {
		t.Errorf("got %v", err)
	}
	if left, err := inside.List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The unified hierarchy of a hybrid machine has no controllers: groups can be made and killed, limits cannot be set.
func TestLimitsThatCannotBeHadAreSaid(t *testing.T) {
	tree := testTree(t, unifiedHost(t))
	if tree.mounts[0].Has("memory") {
		t.Skip("this unified hierarchy has controllers")
	}
	g := mustCreate(t, tree, "bot-1", Limits{MemoryBytes: 1 << 20, PidsMax: 10, CPUShares: 100})
	if got := g.Weaker(); len(got) != 3 || !strings.Contains(got[0], "limit on memory") {
		t.Errorf("weaker %q, want all three limits", got)
	}
}
