// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/driver/slot"
)

func newLedger(node *slot.Dir, mb int) *Ledger {
	return &Ledger{Node: node, Read: func(context.Context) Reading { return availableReading(mb) }}
}

func promisedMB(t *testing.T, l *Ledger) int {
	t.Helper()
	mb, err := l.PromisedMB(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return mb
}

// Ten starts in one second with room for four: four pass (M4).
func TestM4TenStartsAtOnce(t *testing.T) {
	l := newLedger(openNode(t), 2000)
	var mu sync.Mutex
	var promises []*Promise
	refused := 0
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			p, err := l.Admit(context.Background(), 1000, 300)
			mu.Lock()
			defer mu.Unlock()
			var low *FloorError
			switch {
			case err == nil:
				promises = append(promises, p)
			case errors.As(err, &low):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(promises) != 4 || refused != 6 {
		t.Errorf("%d admitted, %d refused, want 4 and 6", len(promises), refused)
	}
	if got := promisedMB(t, l); got != 1200 {
		t.Errorf("promised %d MB, want 1200", got)
	}
	for _, p := range promises {
		p.Release()
		p.Release()
	}
	if got := promisedMB(t, l); got != 0 {
		t.Errorf("after release: %d MB promised", got)
	}
	left, err := os.ReadDir(filepath.Join(l.Node.Path(), "promises"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestM4OtherProcessesCountUntilTheyDie(t *testing.T) {
	node := openNode(t)
	l := newLedger(node, 1500)
	o := startOther(t, node, 1500, 1)
	o.send("admit")
	o.want("ok")
	if got := promisedMB(t, l); got != 300 {
		t.Fatalf("promised %d MB, want the other's 300", got)
	}
	mine, err := l.Admit(context.Background(), 1000, 300)
	if err != nil {
		t.Fatal(err)
	}
	o.send("admit")
	o.want("admit start: 900 MB available (1500 MB less 600 MB for screens that are starting), floor 1000 MB (limit: the host)")
	o.kill()
	if got := promisedMB(t, l); got != 300 {
		t.Errorf("after kill -9 of the other: %d MB promised, want mine, 300", got)
	}
	mine.Release()
	// The dead one's file is swept.
	if got := promisedMB(t, l); got != 0 {
		t.Errorf("%d MB promised, want 0", got)
	}
	if left, err := os.ReadDir(filepath.Join(node.Path(), "promises")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPromiseShrinksAsItIsTaken(t *testing.T) {
	l := newLedger(openNode(t), 4000)
	p, err := l.Admit(context.Background(), 1000, 300)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for _, left := range []int{120, 0, -5} {
		if err := p.Took(left); err != nil {
			t.Fatal(err)
		}
		if got := promisedMB(t, l); got != max(0, left) {
			t.Errorf("promised %d MB, want %d", got, left)
		}
	}
}

func TestM3AdmitPassesTheWarningOn(t *testing.T) {
	l := newLedger(openNode(t), 1200)
	p, err := l.Admit(context.Background(), 1000, 0)
	if err != nil || p.Warning == "" {
		t.Fatalf("got %+v, %v, want a warning", p, err)
	}
	p.Release()
}

// Somebody who stops in the middle of the check (SIGSTOP, a hung disk) delays others only as long as they want.
func TestAdmitGivesUpWithItsContext(t *testing.T) {
	l := newLedger(openNode(t), 4000)
	turn, err := l.Node.Try("promises.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Release()
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("start given up")
	cancel(cause)
	if _, err := l.Admit(ctx, 1000, 300); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

func FuzzParsePromise(f *testing.F) {
	f.Add([]byte("300"))
	f.Add([]byte("-1"))
	f.Add([]byte("99999999999999999999"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := parsePromise(data); got < 0 || got > 1<<30 {
			t.Fatalf("%q is %d MB", data, got)
		}
	})
}
