// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func mustEnter(t *testing.T, g *Gate) *Pass {
	t.Helper()
	p, err := g.Enter(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGateLetsInAsManyAsItHasSlots(t *testing.T) {
	g := &Gate{Node: openNode(t), Slots: 3}
	var inside, most, queued atomic.Int64
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			p, err := g.Enter(context.Background(), func() { queued.Add(1) })
			if err != nil {
				t.Error(err)
				return
			}
			for now := inside.Add(1); ; {
				seen := most.Load()
				if now <= seen || most.CompareAndSwap(seen, now) {
					break
				}
			}
			runtime.Gosched()
			inside.Add(-1)
			p.Release()
			p.Release()
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d were inside at once, want at most 3", most.Load())
	}
	t.Logf("at most %d inside, %d were queued", most.Load(), queued.Load())
	if got := (&Gate{}).slots(); got != runtime.NumCPU() {
		t.Errorf("default of %d slots, want one per core, %d", got, runtime.NumCPU())
	}
}

// enterInOrder starts an Enter and returns once it is queued.
func enterInOrder(t *testing.T, g *Gate, i int, order chan<- int, passes chan<- *Pass) {
	t.Helper()
	queued := make(chan struct{})
	go func() {
		p, err := g.Enter(context.Background(), func() { close(queued) })
		if err != nil {
			t.Error(err)
			return
		}
		order <- i
		passes <- p
	}()
	<-queued
}

// Each gate stands for a process of its own: the order is that of the tickets. Within a process it is that of the
// semaphore, which is first come first served by contract.
func TestGateIsFirstComeFirstServed(t *testing.T) {
	node := openNode(t)
	first := mustEnter(t, &Gate{Node: node, Slots: 1})
	order, passes := make(chan int), make(chan *Pass, 1)
	for i := range 8 {
		enterInOrder(t, &Gate{Node: node, Slots: 1}, i, order, passes)
	}
	first.Release()
	var got []int
	for range 8 {
		got = append(got, <-order)
		(<-passes).Release()
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("entered in the order %v", got)
	}
}

// A process with many waiting starts does not keep another process out (fairness across processes).
func TestGateIsFairAcrossProcesses(t *testing.T) {
	node := openNode(t)
	g := &Gate{Node: node, Slots: 1}
	first := mustEnter(t, g)
	order, passes := make(chan int), make(chan *Pass, 1)
	for i := range 5 {
		enterInOrder(t, g, i, order, passes)
	}
	o := startOther(t, node, 0, 1)
	o.send("enter")
	o.want("queued")
	first.Release()
	// Our head was first; the other process came before the rest of us took tickets.
	<-order
	(<-passes).Release()
	entered := make(chan struct{})
	go func() {
		o.want("ok")
		close(entered)
	}()
	before := 0
	for done := false; !done; {
		select {
		case <-entered:
			done = true
		case <-order:
			before++
			(<-passes).Release()
		}
	}
	if before > 1 {
		t.Errorf("%d of ours entered before the other process", before)
	}
	o.send("leave")
	o.want("ok")
	for range 5 - 1 - before {
		<-order
		(<-passes).Release()
	}
}

func TestGateFreesTheSlotsOfADeadProcess(t *testing.T) {
	node := openNode(t)
	o := startOther(t, node, 0, 1)
	o.send("enter")
	o.want("ok")
	waiting := startOther(t, node, 0, 1)
	waiting.send("enter")
	waiting.want("queued")
	g := &Gate{Node: node, Slots: 1}
	order, passes := make(chan int), make(chan *Pass, 1)
	enterInOrder(t, g, 0, order, passes)
	// Both the one inside and the one before us in the queue die.
	waiting.kill()
	o.kill()
	<-order
	(<-passes).Release()
}

func TestGateGivesUpInTimeAndLeavesItsPlace(t *testing.T) {
	node := openNode(t)
	g := &Gate{Node: node, Slots: 1, MaxWait: time.Millisecond}
	inside := mustEnter(t, g)
	_, err := g.Enter(context.Background(), nil)
	var late *GateTimeoutError
	if !errors.As(err, &late) || late.Slots != 1 {
		t.Fatalf("got %v, want a GateTimeoutError", err)
	}
	if !strings.Contains(late.Sentence(), "1ms") {
		t.Errorf("sentence %q", late.Sentence())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("task stopped")
	patient := &Gate{Node: node, Slots: 1}
	_, err = patient.Enter(ctx, func() { cancel(cause) })
	if !errors.Is(err, cause) {
		t.Fatalf("got %v, want the cause", err)
	}
	inside.Release()
	// The threads that the two left behind do not keep the slot.
	for range 20 {
		mustEnter(t, patient).Release()
	}
}

// Waiters that give up, in any number, do not pile up threads.
func TestGateKeepsOneThreadPerSlot(t *testing.T) {
	g := &Gate{Node: openNode(t), Slots: 2}
	a, b := mustEnter(t, g), mustEnter(t, g)
	before := runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := g.Enter(ctx, cancel); err == nil {
			t.Fatal("entered a full gate")
		}
	}
	if grown := runtime.NumGoroutine() - before; grown > 4 {
		t.Errorf("%d goroutines more after 50 waits, want one per slot", grown)
	}
	a.Release()
	b.Release()
	mustEnter(t, g).Release()
}

func TestDefaultGateWaitIsFiveMinutes(t *testing.T) {
	if DefaultGateWait != 5*time.Minute {
		t.Errorf("got %s", DefaultGateWait)
	}
}
