// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// world is a screen with its lease through whatever happens to it. After every
// event at most one party is admitted, the epoch has not fallen, it has grown when
// the hands changed, no older epoch is admitted, and the agent got the screen only
// from somebody who may give it.
type world struct {
	t      *testing.T
	base   string
	nodes  int
	path   string
	keeper *Keeper
	old    []byte // an older copy of lease.json
	before Lease
	epochs []Epoch
	log    []string
}

var crowd = []ViewerID{"a", "b", "c"}

func newWorld(t *testing.T) *world {
	w := &world{t: t, base: t.TempDir()}
	w.node(Origin{Fresh: true})
	w.before = w.keeper.now()
	w.epochs = []Epoch{w.before.Epoch}
	return w
}

// node moves the screen to a node that has never had it.
func (w *world) node(origin Origin) {
	w.nodes++
	w.path = filepath.Join(w.base, fmt.Sprint(w.nodes))
	if err := os.Mkdir(w.path, 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.supervisor(origin)
}

// supervisor starts another one; the last one is dead without a word.
func (w *world) supervisor(origin Origin) {
	policy := DefaultPolicy()
	policy.Consent = w.nodes%2 == 0
	k, err := OpenKeeper(NewStore(openDir(w.t, w.path), origin), Options{Policy: policy})
	if err != nil {
		w.t.Fatalf("%v: %v", w.log, err)
	}
	w.keeper = k
}

// may says which agent's gain an event explains.
type may func(before Lease) bool

func never(Lease) bool  { return false }
func always(Lease) bool { return true }

// event makes one thing happen.
func (w *world) event(what, who byte) {
	v := crowd[int(who)%len(crowd)]
	file := filepath.Join(w.path, leaseFile)
	explains := may(never)
	holder := func(l Lease) bool { return l.HeldBy(v) }
	name := ""
	switch what % 16 {
	case 0, 1:
		name = "take"
		w.keeper.Take(v, screen.Untrusted{}, who%2 == 0)
	case 2:
		name, explains = "release", holder
		w.keeper.Release(v)
	case 3:
		name, explains = "free", always
		w.keeper.Free()
	case 4:
		name = "attach"
		w.keeper.Attach(v)
	case 5:
		name, explains = "close", holder
		w.keeper.Detach(v, true)
	case 6:
		name = "lose"
		w.keeper.Detach(v, false)
	case 7:
		name = "deny"
		w.keeper.Deny(v)
	case 8:
		name = "restart"
		w.supervisor(Origin{})
	case 9:
		name = "delete"
		os.Remove(file)
		w.supervisor(Origin{})
	case 10:
		name = "truncate"
		os.Truncate(file, int64(who))
		w.supervisor(Origin{})
	case 11:
		name = "put back"
		if w.old != nil {
			os.WriteFile(file, w.old, 0o600)
		}
		w.supervisor(Origin{})
	case 12:
		name = "copy"
		w.old, _ = os.ReadFile(file)
	case 13:
		name = "delete all, the driver knows"
		os.Remove(file)
		os.Remove(filepath.Join(w.path, markFile))
		w.supervisor(Origin{Floor: w.before.Epoch})
	case 14:
		name = "reschedule, the driver knows"
		w.old = nil
		w.node(Origin{Floor: w.before.Epoch})
	case 15:
		name, explains = "reschedule to a new node", always
		w.old = nil
		time.Sleep(time.Second) // no node is faster, and epochs are milliseconds
		w.node(Origin{Fresh: true})
	}
	w.log = append(w.log, fmt.Sprintf("%s %s", name, string(v)))
	w.check(explains)
}

func (w *world) check(explains may) {
	w.t.Helper()
	l := w.keeper.now()
	before := w.before
	w.before = l
	admitted := 0
	if w.keeper.Admit(l.Epoch) == nil {
		admitted++
	}
	for _, v := range crowd {
		if w.keeper.Holds(v) {
			admitted++
		}
	}
	hands := l.Holder != before.Holder || l.Viewer != before.Viewer
	switch {
	case admitted > 1:
		w.fail("%d are admitted under %+v", admitted, l)
	case l.Epoch < before.Epoch, hands && l.Epoch == before.Epoch:
		w.fail("%+v came after %+v", l, before)
	case before.Held() && !l.Held() && !explains(before):
		w.fail("the agent got %+v from %+v", l, before)
	}
	for _, e := range w.epochs {
		if e != l.Epoch && w.keeper.Admit(e) == nil {
			w.fail("epoch %d is admitted at %d", e, l.Epoch)
		}
	}
	w.epochs = append(w.epochs, l.Epoch)
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after %v: %s", w.log, fmt.Sprintf(format, args...))
}

func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				w := newWorld(t)
				for range 60 {
					w.event(byte(random.Uint32()), byte(random.Uint32()))
				}
			})
		})
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x0c\x00\x02\x00\x0b\x00"))
	f.Add([]byte("\x00\x01\x09\x00\x0d\x00\x0f\x00\x03\x00"))
	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) > 80 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for ; len(events) >= 2; events = events[2:] {
				w.event(events[0], events[1])
			}
		})
	})
}
