// SPDX-License-Identifier: MPL-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func newLog(t *testing.T) *Log {
	t.Helper()
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return NewLog(dir)
}

func fill(t *testing.T, l *Log, n int) [][]byte {
	t.Helper()
	for i := range n {
		if err := l.Append(Entry{Act: Taken, Peer: Peer{Door: Operator}, Viewer: "aabbccddeeff", Before: 1, After: 2, Watchers: nil}); err != nil {
			t.Fatal(i, err)
		}
	}
	return lines(t, l)
}

func lines(t *testing.T, l *Log) [][]byte {
	t.Helper()
	text, err := l.Read()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(bytes.Lines(text))
}

// X39: removed, edited and reordered lines are found, also at the end.
func TestX39ChangedLines(t *testing.T) {
	l := newLog(t)
	whole := fill(t, l, 5)
	head := l.Head()
	if entries, err := Verify(bytes.Join(whole, nil), head); err != nil || len(entries) != 5 {
		t.Fatalf("untouched: %d lines, %v", len(entries), err)
	}
	for name, tc := range map[string]struct {
		change func([][]byte) [][]byte
		line   int
	}{
		"edited":         {func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte("taken"), []byte("asked"), 1); return l }, 4},
		"edited at last": {func(l [][]byte) [][]byte { l[4] = bytes.Replace(l[4], []byte("taken"), []byte("asked"), 1); return l }, 5},
		"removed":        {func(l [][]byte) [][]byte { return slices.Delete(l, 1, 2) }, 2},
		"cut short":      {func(l [][]byte) [][]byte { return l[:4] }, 5},
		"emptied":        {func([][]byte) [][]byte { return nil }, 1},
		"swapped":        {func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }, 2},
		"doubled":        {func(l [][]byte) [][]byte { return slices.Insert(l, 2, l[1]) }, 3},
		"half a line":    {func(l [][]byte) [][]byte { l[4] = l[4][:9]; return l }, 5},
		"garbage":        {func(l [][]byte) [][]byte { l[3] = []byte("{}\n"); return l }, 4},
		"first forged": {func(l [][]byte) [][]byte {
			l[0] = bytes.Replace(l[0], []byte(`"seq":1`), []byte(`"seq":3`), 1)
			return l
		}, 1},
	} {
		var broken *BrokenError
		if _, err := Verify(bytes.Join(tc.change(slices.Clone(whole)), nil), head); !errors.As(err, &broken) || broken.Line != tc.line {
			t.Errorf("%s: %v, want line %d", name, err, tc.line)
		}
	}
}

// X39: lines that come at once, from two supervisors, make one chain.
func TestX39ConcurrentLines(t *testing.T) {
	a := newLog(t)
	b := NewLog(a.dir)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			l := a
			if i%2 == 0 {
				l = b
			}
			if err := l.Append(Entry{Act: Taken}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	entries, err := Verify(bytes.Join(lines(t, a), nil), a.Head())
	if err != nil || len(entries) != 50 || entries[49].Seq != 50 {
		t.Errorf("%d lines, %v", len(entries), err)
	}
}

// The chain goes on over the file that was put aside, and over a restart.
func TestRotationKeepsTheChain(t *testing.T) {
	l := newLog(t)
	l.most = 1 << 10
	fill(t, l, 30)
	if info, err := l.dir.Stat(Name); err != nil || info.Size() > l.most {
		t.Errorf("the file has %v bytes, %v", info.Size(), err)
	}
	next := NewLog(l.dir)
	kept := fill(t, next, 1)
	entries, err := Verify(bytes.Join(kept, nil), next.Head())
	if err != nil || entries[len(entries)-1].Seq != 31 || entries[0].Seq == 1 {
		t.Errorf("lines %d to %d, %v", entries[0].Seq, entries[len(entries)-1].Seq, err)
	}
	for _, name := range []string{Name, Older, lockName} {
		if info, err := l.dir.Stat(name); err != nil || info.Mode() != fileMode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

// What a crash left of a line is cut off, and the next one goes on from the whole one.
func TestTornLine(t *testing.T) {
	l := newLog(t)
	fill(t, l, 2)
	f, err := l.dir.OpenFile(Name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"seq":3,"act":"ta`)
	_ = f.Close()
	next := NewLog(l.dir)
	if entries, err := Verify(bytes.Join(fill(t, next, 1), nil), next.Head()); err != nil || len(entries) != 3 {
		t.Errorf("%d lines, %v", len(entries), err)
	}
}

// What could not be written is counted in the next line.
func TestLostLinesAreCounted(t *testing.T) {
	l := newLog(t)
	fill(t, l, 1)
	if err := l.dir.Mkdir("aside", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{l.dir.Rename(Name, "aside/x"), l.dir.Mkdir(Name, 0o700)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := l.Append(Entry{Act: Taken}); !errors.Is(err, unix.EISDIR) {
		t.Errorf("append to a directory: %v", err)
	}
	for _, step := range []error{l.dir.Remove(Name), l.dir.Rename("aside/x", Name)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	fill(t, l, 1)
	entries, err := Verify(bytes.Join(lines(t, l), nil), l.Head())
	if err != nil || entries[1].Lost != 1 {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestHead(t *testing.T) {
	want := Head{Seq: 7, Hash: hashOf([]byte("x"))}
	if got, err := ParseHead(want.String()); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "7", "7:abc", "x:" + string(want.Hash)} {
		if _, err := ParseHead(text); err == nil {
			t.Errorf("%q is a head", text)
		}
	}
}

func FuzzVerify(f *testing.F) {
	dir, err := os.OpenRoot(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	l := NewLog(dir)
	for range 3 {
		if err := l.Append(Entry{Act: Taken}); err != nil {
			f.Fatal(err)
		}
	}
	text, err := l.Read()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := Verify(text, Head{})
		if err == nil && len(entries) != strings.Count(string(text), "\n") {
			t.Errorf("%d entries of %q", len(entries), text)
		}
		for i := 1; i < len(entries); i++ {
			if entries[i].Seq != entries[i-1].Seq+1 {
				t.Errorf("numbers %d, %d", entries[i-1].Seq, entries[i].Seq)
			}
		}
	})
}
