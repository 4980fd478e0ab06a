// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
	"github.com/botscreen/botscreen/shared/testkit/wallclock"
)

// told collects notices.
type told struct {
	mu   sync.Mutex // guards list
	list []Notice
}

func (n *told) notify(notice Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, notice)
}

// kinds returns and forgets what was told.
func (n *told) kinds() []NoticeKind {
	n.mu.Lock()
	defer n.mu.Unlock()
	var kinds []NoticeKind
	for _, notice := range n.list {
		kinds = append(kinds, notice.Kind)
	}
	n.list = nil
	return kinds
}

// keep opens a keeper in path and runs it for the test's bubble.
func keep(t *testing.T, path string, policy Policy) (*Keeper, *told) {
	t.Helper()
	var notices told
	k, err := OpenKeeper(NewStore(openDir(t, path), Origin{Fresh: true}), Options{Policy: policy, Notify: notices.notify})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return k, &notices
}

func (k *Keeper) now() Lease {
	l, _ := k.Lease()
	return l
}

func mustTake(t *testing.T, k *Keeper, v ViewerID) Lease {
	t.Helper()
	l, err := k.Take(v, screen.Untrusted{}, false)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// L5: the last taker wins.
func TestL5LastTakerWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, notices := keep(t, t.TempDir(), DefaultPolicy())
		first := k.now()
		mustTake(t, k, "a")
		l := mustTake(t, k, "b")
		if l.Epoch != first.Epoch+2 || !k.Holds("b") || k.Holds("a") {
			t.Errorf("%+v", l)
		}
		if got := notices.list[1]; got.From.Viewer != "a" || got.To.Viewer != "b" {
			t.Errorf("the loser is not named: %+v", got)
		}
		if l, err := k.Release("a"); err != nil || !l.HeldBy("b") {
			t.Errorf("the loser releases: %+v, %v", l, err)
		}
	})
}

// L5: with consent the present holder has 10 seconds to say no.
func TestL5Consent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := DefaultPolicy()
		policy.Consent = true
		k, notices := keep(t, t.TempDir(), policy)
		k.Attach("a")
		mustTake(t, k, "a") // nobody is asked for the agent
		begin := time.Now()
		var asked *AskedError
		if l, err := k.Take("b", screen.Distrust("mine"), false); !errors.As(err, &asked) || !l.HeldBy("a") || !asked.Until.Equal(begin.Add(10*time.Second)) {
			t.Fatalf("%+v, %v", l, err)
		}
		time.Sleep(5 * time.Second)
		k.Deny("b") // not its to deny
		k.Deny("a")
		time.Sleep(time.Hour)
		if !k.Holds("a") {
			t.Error("denied and taken all the same")
		}
		// Unanswered it is granted at its time; a later claim takes its place, not more time.
		k.Take("b", screen.Untrusted{}, false)
		time.Sleep(9 * time.Second)
		k.Take("c", screen.Untrusted{}, false)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if !k.Holds("a") {
			t.Error("taken before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !k.Holds("c") {
			t.Errorf("not granted: %+v", k.now())
		}
		want := []NoticeKind{Taken, Asked, Denied, Asked, Asked, Taken}
		if got := notices.kinds(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		// A holder that lets go gives it to the one who asked; so does one that vanishes,
		// and one that is away is not asked.
		k.Attach("c")
		k.Take("a", screen.Untrusted{}, false)
		if l, err := k.Release("c"); err != nil || !l.HeldBy("a") {
			t.Errorf("released: %+v, %v", l, err)
		}
		k.Take("b", screen.Untrusted{}, false)
		k.Detach("a", false)
		if !k.Holds("b") {
			t.Errorf("vanished: %+v", k.now())
		}
		mustTake(t, k, "c")
		// An operator does not ask.
		if l, err := k.Take("a", screen.Untrusted{}, true); err != nil || !l.HeldBy("a") {
			t.Errorf("forced: %+v, %v", l, err)
		}
	})
}

// L9: only a deliberate end hands back, and only that of the last stream.
func TestL9LostConnectionIsNoHandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := keep(t, t.TempDir(), DefaultPolicy())
		k.Attach("a")
		held := mustTake(t, k, "a")
		if !held.Away.IsZero() {
			t.Errorf("taken by an attached viewer: %+v", held)
		}
		k.Detach("a", false)
		if l := k.now(); !l.HeldBy("a") || l.Away.IsZero() || l.Epoch != held.Epoch {
			t.Errorf("lost: %+v", l)
		}
		k.Attach("a")
		if l := k.now(); l != held {
			t.Errorf("back: %+v", l)
		}
		k.Attach("b")
		k.Detach("b", true)
		k.Attach("a") // a newer stream of the same viewer replaces the older
		k.Detach("a", true)
		if !k.Holds("a") {
			t.Error("the end of one of two streams handed back")
		}
		if l, err := k.Detach("a", true); err != nil || l.Holder != Agent || l.Epoch != held.Epoch+1 {
			t.Errorf("deliberate: %+v, %v", l, err)
		}
	})
}

// L10, LSE-14: grace, one reminder, then parked; nothing else until somebody acts.
func TestL10VanishedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, notices := keep(t, t.TempDir(), DefaultPolicy())
		held := mustTake(t, k, "a") // by the command: no stream has come yet
		notices.kinds()
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if got := notices.kinds(); got != nil {
			t.Errorf("told %v within the grace", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := notices.kinds(); !slices.Equal(got, []NoticeKind{HumanAway}) {
			t.Errorf("told %v at its end", got)
		}
		var refusal *HeldError
		if err := k.Admit(held.Epoch); !errors.As(err, &refusal) || !refusal.Left {
			t.Errorf("the agent is told %v", err)
		}
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		if got := notices.kinds(); got != nil || !k.Holds("a") {
			t.Errorf("told %v, lease %+v", got, k.now())
		}
		k.Attach("a")
		k.Detach("a", false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := notices.kinds(); !slices.Equal(got, []NoticeKind{HumanAway}) {
			t.Errorf("told %v the second time", got)
		}
		if l, err := k.Free(); err != nil || l.Holder != Agent || k.Admit(l.Epoch) != nil {
			t.Errorf("freed: %+v, %v", l, err)
		}
	})
}

// L10: with a limit the lease returns by itself, also for the next supervisor.
func TestL10AwayLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		policy := DefaultPolicy()
		policy.AwayLimit = time.Hour
		k, _ := keep(t, path, policy)
		held := mustTake(t, k, "a")
		time.Sleep(30 * time.Minute)
		next, notices := keep(t, path, policy)
		time.Sleep(31*time.Minute - 1)
		synctest.Wait()
		if !next.Holds("a") {
			t.Error("returned early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if l := next.now(); l.Holder != Agent || l.Epoch != held.Epoch+1 {
			t.Errorf("%+v", l)
		}
		if got := notices.kinds(); !slices.Equal(got, []NoticeKind{HumanAway, HandedBack}) {
			t.Errorf("told %v", got)
		}
	})
}

// While hands change nobody is admitted, and the new lease is not seen before the
// old holder's keys are released.
func TestHandoverComesFirst(t *testing.T) {
	var k *Keeper
	var calls int
	store := NewStore(openDir(t, t.TempDir()), Origin{Fresh: true})
	var changing <-chan struct{}
	k, err := OpenKeeper(store, Options{Policy: DefaultPolicy(), Handover: func(from, to Lease) {
		calls++
		if seen, _ := k.Lease(); seen != from {
			t.Errorf("%+v is seen already", seen)
		}
		for _, epoch := range []Epoch{from.Epoch, to.Epoch} {
			if k.Admit(epoch) == nil {
				t.Errorf("epoch %d is admitted while hands change", epoch)
			}
		}
		if k.Holds("a") || k.Holds("b") {
			t.Error("a human holds while hands change")
		}
		select {
		case <-changing:
			changing = k.Changing()
		default:
			t.Error("who acts was not told that hands change")
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	changing = k.Changing()
	mustTake(t, k, "a")
	mustTake(t, k, "a") // no change
	mustTake(t, k, "b")
	k.Release("a") // ignored
	k.Release("b")
	k.Free() // no change
	if calls != 3 {
		t.Errorf("%d handovers, want 3", calls)
	}
}

// No action of the agent comes after the handover that voids it, whoever is faster.
func TestL6NoActionAfterHandover(t *testing.T) {
	var input sync.Mutex // the relay's: who holds it may write to the screen
	closed := map[Epoch]bool{}
	store := NewStore(openDir(t, t.TempDir()), Origin{Fresh: true})
	k, err := OpenKeeper(store, Options{Policy: DefaultPolicy(), Handover: func(from, _ Lease) {
		input.Lock()
		defer input.Unlock()
		closed[from.Epoch] = true
	}})
	if err != nil {
		t.Fatal(err)
	}
	var agents sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		agents.Add(1)
		go func() {
			defer agents.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				seen := k.now().Epoch
				input.Lock()
				if k.Admit(seen) == nil && closed[seen] {
					t.Errorf("epoch %d acts after its handover", seen)
				}
				input.Unlock()
			}
		}()
	}
	for range 50 {
		mustTake(t, k, "a")
		k.Release("a")
	}
	close(stop)
	agents.Wait()
}

func TestLeaseChannel(t *testing.T) {
	k, err := OpenKeeper(NewStore(openDir(t, t.TempDir()), Origin{Fresh: true}), Options{Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	_, changed := k.Lease()
	k.Release("a")
	select {
	case <-changed:
		t.Fatal("nothing changed and it was told")
	default:
	}
	go k.Take("a", screen.Untrusted{}, false)
	<-changed
	if !k.Holds("a") {
		t.Error("told before it was so")
	}
}

// BenchmarkTakeAndRelease is two changes of hands, each durable on disk.
func BenchmarkTakeAndRelease(b *testing.B) {
	k, err := OpenKeeper(NewStore(openDir(b, b.TempDir()), Origin{Fresh: true}), Options{Policy: DefaultPolicy()})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := k.Take("a", screen.Untrusted{}, false); err != nil {
			b.Fatal(err)
		}
		if _, err := k.Release("a"); err != nil {
			b.Fatal(err)
		}
	}
}

// X3: a screen that cannot be made ready for a person does not change hands: nobody else
// was admitted meanwhile, nothing was written, and the agent goes on.
func TestX3Prepare(t *testing.T) {
	dir := t.TempDir()
	var k *Keeper
	var trouble error
	var handovers int
	k, err := OpenKeeper(NewStore(openDir(t, dir), Origin{Fresh: true}), Options{
		Policy: DefaultPolicy(),
		Prepare: func(from, to Lease) error {
			if err := k.Admit(from.Epoch); err == nil || k.Holds(to.Viewer) {
				t.Errorf("somebody is admitted while the screen is prepared: %v", err)
			}
			return trouble
		},
		Handover: func(_, _ Lease) { handovers++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	before := k.now()
	trouble = errors.New("a logger lives")
	var unready *PrepareError
	if _, err := k.Take("ann", screen.Untrusted{}, false); !errors.As(err, &unready) || !errors.Is(err, trouble) {
		t.Errorf("taken: %v", err)
	}
	if err := k.Admit(before.Epoch); err != nil || k.now() != before || handovers != 0 {
		t.Errorf("after the refusal: %v, %+v, %d handovers", err, k.now(), handovers)
	}
	if onDisk := NewStore(openDir(t, dir), Origin{}).Read(time.Now()); onDisk.Held() || onDisk.Epoch > before.Epoch {
		t.Errorf("on disk is %+v", onDisk)
	}
	trouble = nil
	if held := mustTake(t, k, "ann"); !held.HeldBy("ann") || handovers != 1 {
		t.Errorf("%+v, %d handovers", held, handovers)
	}
	if back, err := k.Release("ann"); err != nil || back.Held() {
		t.Errorf("a hand-back needs nothing prepared: %+v, %v", back, err)
	}
}

// MEM-10: how long a holder has been away is counted by the monotonic clock. Only for the
// time before this process there is nothing but the wall clock.
func TestMEM10Absence(t *testing.T) {
	policy := DefaultPolicy()
	policy.AwayLimit = time.Hour
	began := time.Now()
	held, err := Lease{Holder: Agent, Epoch: 1}.Take("a", screen.Untrusted{}, began)
	if err != nil {
		t.Fatal(err)
	}
	held = held.Left("a", began)
	for name, jump := range map[string]time.Duration{"8 h on": 8 * time.Hour, "1 h back": -time.Hour} {
		var a absence
		a.at(held.Away, began)
		soon := a.at(held.Away, wallclock.Jumped(began.Add(time.Second), jump))
		if l, err := held.Expire(policy, soon); err != nil || !l.Held() || held.Presence(policy, soon) != Gone {
			t.Errorf("%s: after a second of absence: %s, %+v, %v", name, held.Presence(policy, soon), l, err)
		}
		late := a.at(held.Away, wallclock.Jumped(began.Add(time.Hour+policy.Grace), jump))
		if l, err := held.Expire(policy, late); err != nil || l.Held() {
			t.Errorf("%s: after the limit: %+v, %v", name, l, err)
		}
	}
	var next absence // of the next supervisor
	if at := next.at(held.Away, began.Add(2*time.Hour)); at.Sub(held.Away) < 2*time.Hour {
		t.Errorf("the next process counts from %s", at.Sub(held.Away))
	}
}
