// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// openDir is a control directory as a supervisor gets it: by descriptor.
func openDir(t testing.TB, path string) *os.Root {
	t.Helper()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// taker is a step: this viewer takes.
func taker(v ViewerID) func(Lease) (Lease, error) {
	return func(l Lease) (Lease, error) { return l.Take(v, screen.Distrust("login"), noon) }
}

func freer(l Lease) (Lease, error) { return l.Free(noon) }

func mustUpdate(t *testing.T, s *Store, change func(Lease) (Lease, error)) Lease {
	t.Helper()
	l, err := s.Update(noon, change)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestL1Files(t *testing.T) {
	path := t.TempDir()
	s := NewStore(openDir(t, path), Origin{Fresh: true})
	first, err := s.Load(noon)
	if err != nil || first != First(noon) {
		t.Fatalf("%+v, %v", first, err)
	}
	// What was loaded is on disk: a later look is the same lease.
	if again := NewStore(openDir(t, path), Origin{Fresh: true}).Read(noon.Add(time.Hour)); again != first {
		t.Fatalf("read again: %+v, want %+v", again, first)
	}
	l := mustUpdate(t, s, taker("a"))
	if got := NewStore(openDir(t, path), Origin{}).Read(noon); got != l {
		t.Fatalf("read %+v, want %+v", got, l)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	text, err := os.ReadFile(filepath.Join(path, leaseFile))
	if err != nil {
		t.Fatal(err)
	}
	// A byte-order mark is tolerated.
	if err := os.WriteFile(filepath.Join(path, leaseFile), append([]byte("\xef\xbb\xbf"), bytes.TrimSpace(text)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.Read(noon); got != l {
		t.Errorf("with a byte-order mark: %+v", got)
	}
}

// L2, LSE-08: whatever is wrong with the file, the agent is refused, the reason is
// named, a human can take over, an operator can free it, and the epoch never falls.
func TestL2FailsClosed(t *testing.T) {
	file := func(name string) string {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	content := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, spoil := range map[string]func(path string) error{
		"empty":          content(file("lease-empty.json")),
		"torn":           content(file("lease-torn.json")),
		"unknown holder": content(file("lease-unknown-holder.json")),
		"largest epoch":  content(file("lease-maxepoch.json")),
		"negative epoch": content(`{"holder":"agent","epoch":-5}`),
		"no epoch":       content(`{"holder":"agent"}`),
		"fraction":       content(`{"holder":"agent","epoch":5.5}`),
		"text":           content(`{"holder":"agent","epoch":"5"}`),
		"no holder":      content(`{"epoch":5}`),
		"next version":   content(`{"v":2,"holder":"agent","epoch":5}`),
		"two":            content(`{"holder":"agent","epoch":5}{"holder":"agent","epoch":6}`),
		"agent's viewer": content(`{"holder":"agent","viewer":"x","epoch":5}`),
		"zeros":          content(strings.Repeat("\x00", 200)),
		"large":          content(`{"holder":"agent","epoch":5` + strings.Repeat(" ", 1<<20) + `}`),
		"old":            content(`{"holder":"agent","epoch":5}`),
		"missing":        os.Remove,
		"directory":      func(path string) error { os.Remove(path); return os.MkdirAll(path+"/x", 0o700) },
		"symlink":        func(path string) error { os.Rename(path, path+".real"); return os.Symlink(leaseFile+".real", path) },
		"dangling link":  func(path string) error { os.Remove(path); return os.Symlink("/etc/shadow", path) },
		"pipe":           func(path string) error { os.Remove(path); return syscall.Mkfifo(path, 0o600) },
		"others write":   func(path string) error { return os.Chmod(path, 0o666) },
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			before := mustUpdate(t, NewStore(openDir(t, path), Origin{Fresh: true}), func(l Lease) (Lease, error) { return l, nil })
			if before.Holder != Agent {
				t.Fatal(before)
			}
			if err := spoil(filepath.Join(path, leaseFile)); err != nil {
				t.Fatal(err)
			}
			// Another supervisor, which knows that the screen has existed.
			s := NewStore(openDir(t, path), Origin{})
			l := s.Read(noon)
			var held *HeldError
			if err := l.Admit(before.Epoch, DefaultPolicy(), noon); !errors.As(err, &held) {
				t.Fatalf("the agent is told %v", err)
			}
			if !strings.HasPrefix(l.Reason.String(), leaseFile+": ") || l.Epoch <= before.Epoch {
				t.Errorf("lease = %+v", l)
			}
			loaded, err := s.Load(noon)
			if err != nil || !loaded.Held() || loaded.Epoch <= before.Epoch {
				t.Fatalf("loaded %+v, %v", loaded, err)
			}
			taken := mustUpdate(t, s, taker("a"))
			if !taken.HeldBy("a") || taken.Epoch != loaded.Epoch+1 {
				t.Errorf("taken: %+v after %+v", taken, loaded)
			}
			if freed := mustUpdate(t, s, freer); freed.Holder != Agent || freed.Epoch != taken.Epoch+1 {
				t.Errorf("freed: %+v", freed)
			}
			if again := mustUpdate(t, s, taker("b")); NewStore(openDir(t, path), Origin{}).Read(noon) != again {
				t.Error("the next good write did not end it")
			}
		})
	}
}

// L2: no file is the agent's only where nothing of the screen exists.
func TestL2NoFile(t *testing.T) {
	for name, tc := range map[string]struct {
		origin Origin
		mark   string
		want   Holder
		least  Epoch
	}{
		"new":                {Origin{Fresh: true}, "", Agent, epochAt(noon)},
		"screen record":      {Origin{}, "", Human, epochAt(noon)},
		"driver's epoch":     {Origin{Fresh: true, Floor: 41}, "", Human, 42},
		"mark":               {Origin{Fresh: true}, "41\n", Human, 42},
		"mark, later floor":  {Origin{Fresh: true, Floor: 50}, "41", Human, 51},
		"mark unreadable":    {Origin{Fresh: true}, "many", Human, epochAt(noon)},
		"mark above 2^53":    {Origin{Fresh: true}, "9007199254740993", Human, epochAt(noon)},
		"mark of nothing":    {Origin{Fresh: true}, " ", Human, epochAt(noon)},
		"negative mark":      {Origin{Fresh: true}, "-1", Human, epochAt(noon)},
		"epoch near the end": {Origin{Floor: MaxEpoch - 2}, "", Human, MaxEpoch - 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			if tc.mark != "" {
				if err := os.WriteFile(filepath.Join(path, markFile), []byte(tc.mark), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := NewStore(openDir(t, path), tc.origin)
			if l := s.Read(noon); l.Holder != tc.want || l.Epoch < tc.least {
				t.Errorf("read %+v", l)
			}
			if l, err := s.Load(noon); err != nil || l.Holder != tc.want || l.Epoch < tc.least {
				t.Errorf("loaded %+v, %v", l, err)
			}
		})
	}
	s := NewStore(openDir(t, t.TempDir()), Origin{Floor: MaxEpoch})
	if l, err := s.Load(noon); !errors.Is(err, ErrExhausted) || !l.Held() {
		t.Errorf("beyond the last epoch: %+v, %v", l, err)
	}
}

// X26: the file deleted, truncated, put back from an older copy, or the profile
// moved to another directory, each while a human holds: the agent is refused and
// the epoch does not fall, for the running store and for the next.
func TestX26LostWhileHeld(t *testing.T) {
	for name, lose := range map[string]func(path string, old []byte) error{
		"deleted":    func(path string, _ []byte) error { return os.Remove(path) },
		"truncated":  func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"older copy": func(path string, old []byte) error { return os.WriteFile(path, old, 0o600) },
		"all deleted": func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Remove(filepath.Join(filepath.Dir(path), markFile)))
		},
		"both removed": func(path string, _ []byte) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "control")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			s := NewStore(openDir(t, path), Origin{Fresh: true})
			agent, err := s.Load(noon)
			if err != nil {
				t.Fatal(err)
			}
			old, err := os.ReadFile(filepath.Join(path, leaseFile))
			if err != nil {
				t.Fatal(err)
			}
			held := mustUpdate(t, s, taker("a"))
			if err := lose(filepath.Join(path, leaseFile), old); err != nil {
				t.Fatal(err)
			}
			os.MkdirAll(path, 0o700)
			next := NewStore(openDir(t, path), Origin{Floor: held.Epoch}) // as the driver's state says
			for which, store := range map[string]*Store{"running": s, "next": next} {
				l := store.Read(noon)
				if l.Admit(agent.Epoch, DefaultPolicy(), noon) == nil || l.Admit(l.Epoch, DefaultPolicy(), noon) == nil || l.Epoch < held.Epoch {
					t.Errorf("%s: %+v", which, l)
				}
			}
			loaded, err := next.Load(noon)
			if err != nil || !loaded.Held() || loaded.Epoch <= held.Epoch {
				t.Errorf("loaded %+v, %v", loaded, err)
			}
			if freed := mustUpdate(t, next, freer); freed.Holder != Agent || freed.Epoch <= loaded.Epoch {
				t.Errorf("freed %+v", freed)
			}
		})
	}
}

// L11: the lease outlives the supervisor, whose end is the end of every stream.
func TestL11OutlivesTheSupervisor(t *testing.T) {
	path := t.TempDir()
	held := mustUpdate(t, NewStore(openDir(t, path), Origin{Fresh: true}), taker("a"))
	next := NewStore(openDir(t, path), Origin{})
	later := noon.Add(time.Hour)
	l, err := next.Load(later)
	if err != nil || l.Epoch != held.Epoch || !l.HeldBy("a") || !l.Away.Equal(later) || !l.Since.Equal(held.Since) {
		t.Errorf("%+v, %v", l, err)
	}
	if again, err := NewStore(openDir(t, path), Origin{}).Load(later.Add(time.Hour)); err != nil || again != l {
		t.Errorf("a third supervisor starts the grace again: %+v, %v", again, err)
	}
}

// A crash between the two writes leaves a late mark, which is no loss.
func TestCrashBetweenTheFiles(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	first, err := NewStore(dir, Origin{Fresh: true}).Load(noon)
	if err != nil {
		t.Fatal(err)
	}
	taken, _ := first.Take("a", screen.Untrusted{}, noon)
	text, _ := encode(taken)
	if err := write(dir, file{leaseFile, text}); err != nil {
		t.Fatal(err)
	}
	if l := NewStore(dir, Origin{}).Read(noon); l != taken {
		t.Fatalf("%+v, want %+v", l, taken)
	}
	// Lost now, the lease's epoch is not used again although no mark has it.
	os.Remove(filepath.Join(path, leaseFile))
	if l, err := NewStore(dir, Origin{}).Load(noon); err != nil || l.Epoch <= taken.Epoch {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestUpdateRefused(t *testing.T) {
	s := NewStore(openDir(t, t.TempDir()), Origin{Fresh: true})
	held := mustUpdate(t, s, taker("a"))
	refusal := errors.New("no")
	if l, err := s.Update(noon, func(Lease) (Lease, error) { return Lease{}, refusal }); err != refusal || l != held {
		t.Errorf("%+v, %v", l, err)
	}
	if l := s.Read(noon); l != held {
		t.Errorf("%+v", l)
	}
}

// Nothing changed is nothing written.
func TestUpdateWritesOnlyChanges(t *testing.T) {
	path := t.TempDir()
	s := NewStore(openDir(t, path), Origin{Fresh: true})
	mustUpdate(t, s, taker("a"))
	inode := func() uint64 {
		info, err := os.Stat(filepath.Join(path, leaseFile))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	before := inode()
	mustUpdate(t, s, taker("a"))
	if inode() != before {
		t.Error("taking again was written")
	}
	mustUpdate(t, s, taker("b"))
	if inode() == before {
		t.Error("the file was written in place")
	}
}

// X36, LSE-08: with a full disk takeover and hand-back still work; where even that
// fails the lease stays as it was, and whole.
func TestX36FullDisk(t *testing.T) {
	path := t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(path, syscall.MNT_DETACH) })
	dir := openDir(t, path)
	s := NewStore(dir, Origin{Fresh: true})
	if _, err := s.Load(noon); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	last := s.Read(noon)
	for range 3 {
		taken := mustUpdate(t, s, taker("a"))
		last = mustUpdate(t, s, freer)
		if last.Epoch != taken.Epoch+1 || NewStore(dir, Origin{}).Read(noon) != last {
			t.Fatalf("%+v, %+v", taken, last)
		}
	}
	// Without the spare there is no place.
	for _, name := range []string{leaseFile, markFile} {
		if err := dir.Remove(name + spareEnd); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(path, "more"), make([]byte, 1<<20), 0o600)
	l, err := s.Update(noon, taker("a"))
	var disk *StoreError
	if !errors.As(err, &disk) || l != last || NewStore(dir, Origin{}).Read(noon) != last {
		t.Errorf("%+v, %v", l, err)
	}
}

// A directory that cannot be locked is nobody's permission to act.
func TestNoLockNoAgent(t *testing.T) {
	path := t.TempDir()
	s := NewStore(openDir(t, path), Origin{Fresh: true})
	if _, err := s.Load(noon); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(path, lockFile)), os.Mkdir(filepath.Join(path, lockFile), 0o700)); err != nil {
		t.Fatal(err)
	}
	if l := s.Read(noon); !l.Held() {
		t.Errorf("%+v", l)
	}
	var disk *StoreError
	if l, err := s.Update(noon, freer); !errors.As(err, &disk) || !l.Held() {
		t.Errorf("%+v, %v", l, err)
	}
}

// Who waits to change the lease comes before those that want to read it later: readers
// that follow each other without a gap keep no person out.
func TestLockComesInOrder(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	leave, err := lock(dir, unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	enter := func(who string, how int) {
		unlock, err := lock(dir, how)
		if err != nil {
			who = err.Error()
		}
		order <- who
		if err == nil {
			unlock()
		}
	}
	go enter("writer", unix.LOCK_EX)
	awaitBlocked(t, path, 1)
	go enter("reader", unix.LOCK_SH)
	awaitBlocked(t, path, 2)
	leave()
	if first, second := <-order, <-order; first != "writer" || second != "reader" {
		t.Errorf("%s, %s", first, second)
	}
}

// awaitBlocked returns when so many wait for the locks in a directory, see proc_locks(5).
func awaitBlocked(t *testing.T, path string, count int) {
	t.Helper()
	var inodes []string
	for _, name := range []string{lockFile, turnFile} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, fmt.Sprintf(":%d", info.Sys().(*syscall.Stat_t).Ino))
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		blocked := 0
		for line := range strings.Lines(string(locks)) {
			fields := strings.Fields(line)
			if len(fields) > 6 && fields[1] == "->" && slices.ContainsFunc(inodes, func(i string) bool { return strings.HasSuffix(fields[6], i) }) {
				blocked++
			}
		}
		if blocked == count {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d:\n%s", blocked, count, locks)
		}
		runtime.Gosched()
	}
}
