// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// BRW-08: results of 20 MB come whole and in one frame.
func TestBRW08LargeResult(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	p.write(`{"id":1,"method":"Runtime.evaluate"}`)
	want := `{"value":"` + strings.Repeat("x", 20e6) + `\"}"}`
	asked := b.called("Runtime.evaluate")
	go b.raw(fmt.Appendf(nil, `{"id":%d,"result":%s,"sessionId":"S1"}`, *asked.ID, want))
	_, got, err := p.ws.Read(t.Context())
	if err != nil || string(got) != `{"id":1,"result":`+want+`}` {
		t.Errorf("%d bytes came of %d, %v", len(got), len(want), err)
	}
}

// BRW-08: a client may send a large command in small fragments, with pings between.
func TestBRW08FragmentsAndPings(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	expression := strings.Repeat("x", 1<<20)
	command := []byte(`{"id":1,"method":"Runtime.evaluate","params":{"expression":"` + expression + `"}}`)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	answers := make(chan message, 1)
	go func() { answers <- p.read() }() // a ping needs somebody who reads the pong
	w, err := p.ws.Writer(ctx, websocket.MessageText)
	must(t, err)
	for i, fragment := 0, command; len(fragment) > 0; i++ {
		n, err := w.Write(fragment[:min(len(fragment), 1000)])
		must(t, err)
		fragment = fragment[n:]
		if i%100 == 0 {
			must(t, p.ws.Ping(ctx))
		}
	}
	must(t, w.Close())
	got := b.called("Runtime.evaluate")
	if !bytes.Contains(got.Params, []byte(expression)) {
		t.Errorf("the browser got %d bytes", len(got.Params))
	}
	b.answer(got, struct{}{})
	if msg := <-answers; msg.ID == nil || *msg.ID != 1 {
		t.Errorf("%+v", msg)
	}
}

// X31: a message over the limit is not kept; whoever waits for it hears so, and what comes
// after it is served.
func TestX31MessageTooLarge(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	p.write(`{"id":5,"method":"Runtime.evaluate"}`)
	asked := b.called("Runtime.evaluate")
	go func() {
		b.raw(fmt.Appendf(nil, `{"id":%d,"result":"%s"}`, *asked.ID, strings.Repeat("x", MaxMessage)))
		b.event("S1", "A.after", struct{}{})
	}()
	if msg := p.read(); msg.ID == nil || *msg.ID != 5 || msg.Error == nil || !strings.Contains(msg.Error.Message, "64 MiB") {
		t.Errorf("%+v", msg)
	}
	if msg := p.read(); msg.Method != "A.after" {
		t.Errorf("%+v", msg)
	}
}

func TestFramesBoundary(t *testing.T) {
	for size := range 12 {
		f := &frames{r: newFrames(strings.NewReader(strings.Repeat("x", size) + "\x00next\x00")).r, max: 6}
		got, err := f.next()
		if tooLarge := size > 6; errors.Is(err, errTooLarge) != tooLarge || !tooLarge && len(got) != size {
			t.Errorf("%d bytes: %q, %v", size, got, err)
		}
		if got, err := f.next(); string(got) != "next" || err != nil {
			t.Errorf("after %d bytes: %q, %v", size, got, err)
		}
		if _, err := f.next(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}

// W5: who never reads is cut, and until then, and afterwards, the others are served.
func TestW5NeverReads(t *testing.T) {
	m, b := newBrowser(t)
	deaf, other := join(t, m, m.browserPath()), join(t, m, m.browserPath())
	deaf.write(`{"id":1,"method":"A.deaf"}`)
	flooded := b.called("A.deaf")
	stop := make(chan struct{})
	var sent atomic.Int64
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		frame := fmt.Appendf(nil, `{"method":"Page.screencastFrame","params":{"data":"%s"},"sessionId":"%s"}`, strings.Repeat("x", 1<<20), flooded.Session)
		for {
			select {
			case <-stop:
				return
			default:
				b.raw(frame)
				sent.Add(1)
			}
		}
	}()
	for range 3 {
		if msg := other.call("", "Browser.getVersion", struct{}{}); msg.Error != nil {
			t.Errorf("%+v", msg)
		}
	}
	wait(t, deaf.end, "a client that does not read is kept")
	if msg := other.call("", "Browser.getVersion", struct{}{}); msg.Error != nil {
		t.Errorf("%+v", msg)
	}
	close(stop)
	<-flooding
	if n := sent.Load(); n < outboxBytes>>20 {
		t.Errorf("it was cut after %d MiB", n)
	}
}

// A full outbox waits for a client that takes something now and then, though not for ever,
// and gives one up that takes nothing.
func TestOutboxPatience(t *testing.T) {
	fill := func(o *outbox) { must(t, o.put(make([]byte, outboxBytes))) }
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		fill(o)
		began := time.Now()
		if err := o.put([]byte("x")); !errors.Is(err, errSlow) || time.Since(began) != stalled {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		// Nobody waits for one that has taken nothing for so long already.
		began = time.Now()
		if err := o.put([]byte("x")); !errors.Is(err, errSlow) || time.Since(began) != 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		fill(o)
		done := make(chan struct{})
		go func() {
			ticker := time.NewTicker(stalled / 2)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					o.progress()
				case <-done:
					return
				}
			}
		}()
		began := time.Now()
		if err := o.put([]byte("x")); !errors.Is(err, errSlow) || time.Since(began) != patience {
			t.Errorf("a trickle: %v after %s", err, time.Since(began))
		}
		close(done)
	})
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		fill(o)
		put := make(chan error)
		go func() { put <- o.put([]byte("x")) }()
		synctest.Wait()
		msg, _ := o.take()
		o.sent(len(msg))
		if err := <-put; err != nil {
			t.Error(err)
		}
		go func() { put <- o.put(make([]byte, outboxBytes)) }()
		if err := <-put; err != nil {
			t.Error(err)
		}
		go func() { put <- o.put([]byte("x")) }()
		synctest.Wait()
		o.close()
		if err := <-put; !errors.Is(err, errBoxClosed) {
			t.Error(err)
		}
	})
}
