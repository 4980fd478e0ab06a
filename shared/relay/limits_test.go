// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// R8: a viewer that never reads is dropped after 10 s; meanwhile the others' pictures
// and the agent go on.
func TestR8ViewerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stuck := w.knock("stuck", ticket.Control)
		if _, _, err := rfb.Join(stuck.conn, rfb.MaxSize); err != nil {
			t.Fatal(err)
		}
		w.attached("stuck")
		good := w.come(t, "good", ticket.Watch)
		begin := time.Now()
		for i := range 2 {
			go w.x.output(i).Write(bytes.Repeat([]byte{rfb.TypeBell}, 100_000))
		}
		if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "q"}}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(good.saw()); n != 100_000 || time.Since(begin) > time.Second {
			t.Errorf("the other viewer saw %d bytes in %v", n, time.Since(begin))
		}
		end := <-stuck.end
		if took := time.Since(begin); end.Code != TryLater || took < writeTimeout || took > writeTimeout+time.Second {
			t.Errorf("%v after %v", end, took)
		}
		if len(w.Viewers()) != 1 {
			t.Errorf("%+v", w.Viewers())
		}
		w.Close()
	})
}

// R8: while a viewer does not read, nothing is read for it.
func TestR8BackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.knock("v", ticket.Watch)
		if _, _, err := rfb.Join(p.conn, rfb.MaxSize); err != nil {
			t.Fatal(err)
		}
		w.attached("v")
		var sent atomic.Int64
		go func() {
			for {
				n, err := w.x.output(0).Write(make([]byte, chunk))
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if n := sent.Load(); n != chunk {
			t.Errorf("%d bytes were read for a viewer that took none", n)
		}
		io.ReadFull(p.conn, make([]byte, chunk))
		synctest.Wait()
		if n := sent.Load(); n != 2*chunk {
			t.Errorf("%d bytes", n)
		}
		w.Close()
	})
}

// R10: activity is told at the start and then once a minute while somebody watches.
func TestR10Activity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		w := newWorld(t, func(o *Options) { o.Activity = func() { n.Add(1) } })
		begin := time.Now()
		p := w.come(t, "v", ticket.Watch)
		for range 100 {
			p.send(t, rfb.UpdateRequest{Area: corner}.Append(nil))
		}
		synctest.Wait()
		if n.Load() != 1 || !time.Now().Equal(begin) {
			t.Errorf("%d stamps after %v", n.Load(), time.Since(begin))
		}
		time.Sleep(10*time.Minute + time.Second)
		if n.Load() != 11 {
			t.Errorf("%d stamps in ten minutes", n.Load())
		}
		p.conn.Close()
		<-p.end
		time.Sleep(10 * time.Minute)
		if n.Load() != 11 {
			t.Error("a viewer that left counts")
		}
		w.Close()
	})
}

// R12: several at once; who comes and goes disturbs nobody.
func TestR12ComingAndGoing(t *testing.T) {
	w := newWorld(t)
	stays := w.come(t, "stays", ticket.Watch)
	for range 20 {
		p := w.come(t, "comes", ticket.Control)
		w.take(t, "comes")
		p.send(t, keyMessage(true, 'x'))
		p.conn.Close()
		<-p.end
		w.keeper.Free()
	}
	stays.sync(t, w, w.x.output(0))
	if list := w.Viewers(); len(list) != 1 || list[0].Viewer != "" && list[0].Mode != ticket.Watch {
		t.Errorf("%+v", list)
	}
}

// X34: 16 viewers; the next is told to come later, and may when one has left.
func TestX34Viewers(t *testing.T) {
	w := newWorld(t)
	var people []*person
	for i := range maxViewers {
		people = append(people, w.come(t, viewerID(i), ticket.Watch))
	}
	if end := <-w.knock("late", ticket.Watch).end; end.Code != TryLater {
		t.Errorf("%v", end)
	}
	people[3].conn.Close()
	<-people[3].end
	w.come(t, "late", ticket.Watch)
}

// X34: 10 s for a handshake and 32 of them at once; who is through is not counted.
func TestX34Handshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.come(t, "there", ticket.Watch)
		var silent []*person
		for range maxViewers - 1 { // these hold a place each
			silent = append(silent, w.knock("v", ticket.Watch))
		}
		begin := time.Now()
		for _, p := range silent {
			go io.Copy(io.Discard, p.conn)
		}
		for _, p := range silent {
			if end := <-p.end; end.Code != NotFrameable || time.Since(begin) != handshakeTimeout {
				t.Errorf("%v after %v", end, time.Since(begin))
			}
		}
		for range maxPending {
			w.pending <- struct{}{}
		}
		if end := <-w.knock("v", ticket.Watch).end; end.Code != TryLater {
			t.Errorf("%v", end)
		}
		for range maxPending {
			<-w.pending
		}
		if list := w.Viewers(); len(list) != 1 {
			t.Errorf("%+v", list)
		}
		w.Close()
	})
}

// X34: a connection's input is carried at 1,000 messages a second, and none is lost.
func TestX34InputRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.come(t, "a", ticket.Control)
		w.take(t, "a")
		begin := time.Now()
		const n = 10_000
		move := pointerMessage(0, 1, 1)
		p.send(t, bytes.Repeat(move, n))
		w.x.await(func() bool { return len(w.x.inputsLocked()) == n })
		if took := time.Since(begin); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("%d messages in %v", n, took)
		}
		w.Close()
	})
}

// Close ends everybody with 4001, also those who are only knocking, and comes back.
func TestCloseEndsAll(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	q := w.knock("b", ticket.Watch)
	io.ReadFull(q.conn, make([]byte, 12))
	w.Close()
	if end := <-p.end; end.Code != Gone {
		t.Errorf("%v", end)
	}
	if end := <-q.end; end.Code != Gone {
		t.Errorf("%v", end)
	}
	if end := <-w.knock("late", ticket.Watch).end; end.Code != Gone {
		t.Errorf("%v", end)
	}
	if err := w.Do(t.Context(), w.epoch(), action.List{action.Key{Keys: "q"}}); err == nil {
		t.Error("acted on a closed relay")
	}
}

// A screen that is gone ends its viewers with 4001.
func TestGone(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Watch)
	w.x.output(0).conn.Close()
	if end := <-p.end; end.Code != Gone {
		t.Errorf("%v", end)
	}
	w.x.tell(func() { w.x.gone = true })
	if end := <-w.knock("b", ticket.Watch).end; end.Code != Gone {
		t.Errorf("%v", end)
	}
}

// R8: a server that takes nothing ends its viewer too, and only that one waits.
func TestR8ServerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.come(t, "v", ticket.Watch)
		w.x.tell(func() { w.x.stuck = true })
		begin := time.Now()
		for range 2 { // the first is read still
			p.send(t, rfb.UpdateRequest{Area: corner}.Append(nil))
			synctest.Wait()
		}
		if end := <-p.end; end.Code != Gone || time.Since(begin) != writeTimeout {
			t.Errorf("%v after %v", end, time.Since(begin))
		}
		w.x.tell(func() { w.x.stuck = false })
		w.Close()
	})
}
