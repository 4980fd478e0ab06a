// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// LSE-08: when the disk fails a person still gets the screen, an agent does not
// get it back, and what was missed is written as soon as it goes.
func TestDiskFails(t *testing.T) {
	path := t.TempDir()
	k, err := OpenKeeper(NewStore(openDir(t, path), Origin{Fresh: true}), Options{Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	first := k.now()
	lockPath := filepath.Join(path, lockFile)
	if err := errors.Join(os.Remove(lockPath), os.Mkdir(lockPath, 0o700)); err != nil {
		t.Fatal(err)
	}
	l, err := k.Take("a", screen.Untrusted{}, false)
	if err != nil || !l.HeldBy("a") || l.Epoch != first.Epoch+1 || k.Trouble() == nil {
		t.Fatalf("%+v, %v, trouble %v", l, err, k.Trouble())
	}
	var disk *StoreError
	if l, err := k.Release("a"); !errors.As(err, &disk) || !l.HeldBy("a") || k.Admit(first.Epoch) == nil {
		t.Errorf("released into nothing: %+v, %v", l, err)
	}
	if err := os.Remove(lockPath); err != nil {
		t.Fatal(err)
	}
	l, err = k.Release("a")
	if err != nil || l.Holder != Agent || l.Epoch != first.Epoch+2 || k.Trouble() != nil {
		t.Errorf("%+v, %v, trouble %v", l, err, k.Trouble())
	}
	if got := NewStore(openDir(t, path), Origin{}).Read(time.Now()); got != l {
		t.Errorf("on disk: %+v", got)
	}
}

// A refused step is no trouble of the disk.
func TestRefusedStep(t *testing.T) {
	k, err := OpenKeeper(NewStore(openDir(t, t.TempDir()), Origin{Fresh: true}), Options{Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	before := k.now()
	if l, err := k.Take("", screen.Untrusted{}, false); !errors.Is(err, ErrViewerID) || l != before || k.Trouble() != nil {
		t.Errorf("%+v, %v, %v", l, err, k.Trouble())
	}
}

// X26 while the supervisor lives: a human it knows keeps the screen and can hand it
// back; from the agent a lost file takes it.
func TestX26LostUnderAKeeper(t *testing.T) {
	path := t.TempDir()
	var notices told
	k, err := OpenKeeper(NewStore(openDir(t, path), Origin{Fresh: true}), Options{Policy: DefaultPolicy(), Notify: notices.notify})
	if err != nil {
		t.Fatal(err)
	}
	held := mustTake(t, k, "a")
	os.Remove(filepath.Join(path, leaseFile))
	k.Attach("a")
	if l := k.now(); !l.HeldBy("a") || l.Epoch != held.Epoch {
		t.Errorf("%+v", l)
	}
	freed, err := k.Release("a")
	if err != nil || freed.Holder != Agent || freed.Epoch != held.Epoch+1 {
		t.Errorf("%+v, %v", freed, err)
	}
	os.Remove(filepath.Join(path, leaseFile))
	k.Attach("b") // any look at the disk
	l := k.now()
	if !l.Held() || l.Viewer != "" || l.Epoch <= freed.Epoch || k.Admit(freed.Epoch) == nil || k.Admit(l.Epoch) == nil {
		t.Errorf("%+v", l)
	}
	if got := notices.kinds(); !slices.Equal(got, []NoticeKind{Taken, HandedBack, Taken}) {
		t.Errorf("told %v", got)
	}
}

// A supervisor comes up on a disk that takes no write, with the lease that lies there.
func TestOpenOnABrokenDisk(t *testing.T) {
	path := t.TempDir()
	k, err := OpenKeeper(NewStore(openDir(t, path), Origin{Fresh: true}), Options{Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	held := mustTake(t, k, "a")
	lockPath := filepath.Join(path, lockFile)
	if err := errors.Join(os.Remove(lockPath), os.Mkdir(lockPath, 0o700)); err != nil {
		t.Fatal(err)
	}
	k, err = OpenKeeper(NewStore(openDir(t, path), Origin{Floor: held.Epoch}), Options{Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	if l := k.now(); !l.Held() || l.Epoch < held.Epoch || k.Trouble() == nil {
		t.Errorf("%+v, trouble %v", l, k.Trouble())
	}
}
