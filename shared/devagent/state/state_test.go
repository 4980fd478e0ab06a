// SPDX-License-Identifier: MPL-2.0

package state

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func update(t *testing.T, s *Store, f func(tx *Tx)) uint64 {
	t.Helper()
	index, err := s.Update(func(tx *Tx) error { f(tx); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestRowsSurviveAndIndexGrows(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	index := update(t, s, func(tx *Tx) {
		tx.PutAlloc(&api.Allocation{ID: "a1", Namespace: "default", JobID: "j/1"})
		tx.PutEval(&api.Evaluation{ID: "e1", Namespace: "default", JobID: "j/1"})
		tx.PutVariable(&api.Variable{Namespace: "default", Path: "a/b", Items: api.VariableItems{"k": "CANARY"}})
	})
	again := update(t, s, func(tx *Tx) { tx.DeleteEval("e1") })
	if again != index+1 {
		t.Errorf("index %d after %d", again, index)
	}

	s = open(t, dir)
	s.Read(func(v *View) {
		if v.Index() < again {
			t.Errorf("index went back from %d to %d", again, v.Index())
		}
		if a := v.Alloc("a1"); a == nil || a.CreateIndex != index || a.CreateTime == 0 {
			t.Errorf("alloc: %+v", a)
		}
		if v.Eval("e1") != nil {
			t.Error("the deleted evaluation is back")
		}
		if one := v.Variable("default", "a/b"); one == nil || one.Items["k"] != "CANARY" {
			t.Errorf("variable: %+v", one)
		}
		if got := v.JobAllocs("default", "j/1"); len(got) != 1 {
			t.Errorf("allocs of the job: %d", len(got))
		}
		if got := v.Variables("other", ""); len(got) != 0 {
			t.Errorf("variables of another namespace: %d", len(got))
		}
	})
}

func TestFilesArePrivateAndHoldNoSecret(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "state"))
	update(t, s, func(tx *Tx) {
		tx.PutVariable(&api.Variable{Namespace: "default", Path: "p", Items: api.VariableItems{"k": "CANARY"}})
	})
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte("CANARY")) {
			t.Errorf("%s holds the secret", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// One variable's file in another's place is not believed.
func TestSealedRowIsBoundToItsKey(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	update(t, s, func(tx *Tx) {
		tx.PutVariable(&api.Variable{Namespace: "default", Path: "mine", Items: api.VariableItems{"k": "v"}})
		tx.PutVariable(&api.Variable{Namespace: "default", Path: "theirs", Items: api.VariableItems{"k": "w"}})
	})
	table := s.view.variables
	text, err := os.ReadFile(table.path(key("default", "theirs")))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("theirs"), []byte("mine"))
	if err := os.WriteFile(table.path(key("default", "mine")), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "sealed row") {
		t.Errorf("got %v", err)
	}
}

func TestFailedUpdateChangesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	changed := s.Changed()
	boom := errors.New("boom")
	index, err := s.Update(func(tx *Tx) error {
		tx.PutEval(&api.Evaluation{ID: "e"})
		return boom
	})
	if !errors.Is(err, boom) || index != 1 {
		t.Fatalf("index %d, error %v", index, err)
	}
	s.Read(func(v *View) {
		if v.Eval("e") != nil {
			t.Error("the evaluation is there")
		}
	})
	select {
	case <-changed:
		t.Error("waiters were woken")
	default:
	}
}

func TestLeftoverOfAKilledWriteIsRemoved(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	leftover := filepath.Join(dir, string(Jobs), ".write-123")
	if err := os.WriteFile(leftover, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestUnreadableRowIsAnError(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, string(Jobs), "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "x.json") {
		t.Errorf("got %v", err)
	}
}

func TestConcurrentUpdates(t *testing.T) {
	s := open(t, t.TempDir())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 10 {
				if _, err := s.Update(func(tx *Tx) error {
					n := uint64(0)
					if e := tx.Eval("counter"); e != nil {
						n = e.JobModifyIndex
					}
					tx.PutEval(&api.Evaluation{ID: "counter", JobModifyIndex: n + 1})
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.Read(func(v *View) {
		if got := v.Eval("counter").JobModifyIndex; got != 200 {
			t.Errorf("counter %d, want 200", got)
		}
		if v.TableIndex(Evals) != v.Index() || v.TableIndex(Jobs) == v.Index() {
			t.Errorf("table indexes: evals %d, jobs %d, all %d", v.TableIndex(Evals), v.TableIndex(Jobs), v.Index())
		}
	})
}
