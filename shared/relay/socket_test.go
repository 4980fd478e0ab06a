// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// RFB-21: a viewer that is half gone is found within a minute; the lease stays with
// the person, who counts as away.
func TestRFB21HalfOpenViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		conn, _, err := d.open(t, d.mint(t, "a", ticket.Control))
		if err != nil {
			t.Fatal(err)
		}
		frames := websocket.NetConn(context.Background(), conn, websocket.MessageBinary)
		if _, _, err := rfb.Join(frames, rfb.MaxSize); err != nil {
			t.Fatal(err)
		}
		d.attached("a")
		d.take(t, "a")
		begin := time.Now()
		for l, changed := d.keeper.Lease(); l.Away.IsZero(); l, changed = d.keeper.Lease() {
			<-changed
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("found after %v", took)
		}
		if l, _ := d.keeper.Lease(); !l.HeldBy("a") {
			t.Errorf("%+v", l)
		}
		conn.CloseNow()
		end()
	})
}

// RFB-21: one that answers stays, however quiet it is.
func TestQuietViewerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end := memoryDoor(t)
		p := d.visit(t, "a", ticket.Watch)
		time.Sleep(time.Hour)
		if len(d.Viewers()) != 1 {
			t.Error("gone")
		}
		p.conn.CloseNow()
		end()
	})
}

// RFB-23: messages larger than the library's default pass, up to the stated limit;
// above it this viewer alone is closed.
func TestRFB23LargePaste(t *testing.T) {
	texts := make(chan int, 1)
	d := newDoor(t, func(o *Options) {
		o.Paste = func(_ context.Context, text string) error { texts <- len(text); return nil }
	})
	p, other := d.visit(t, "a", ticket.Control), d.visit(t, "b", ticket.Watch)
	d.take(t, "a")
	for _, n := range []int{32 << 10, 32<<10 + 1, 100_000, rfb.MaxCutText} {
		p.send(t, rfb.CutText{Data: bytes.Repeat([]byte{'x'}, n)}.Append(nil))
		if got := <-texts; got != n {
			t.Errorf("%d of %d", got, n)
		}
	}
	p.send(t, rfb.CutText{Data: make([]byte, rfb.MaxCutText+1)}.Append(nil))
	ended(t, p, NotFrameable)
	other.send(t, rfb.UpdateRequest{Area: corner}.Append(nil))
	if len(d.Viewers()) != 1 {
		t.Errorf("%+v", d.Viewers())
	}
}

// RFB-24: pictures, pings, notes of the lease and a close share a socket. Run with
// the race detector.
func TestRFB24SharedSocket(t *testing.T) {
	d := newDoor(t)
	rounds := 15
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		p := d.visit(t, viewerID(i), ticket.Control, leaseProtocol)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		v := d.attachedViewer(viewerID(i))
		output := d.x.output(i)
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := output.Write(make([]byte, 3000)); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			for ctx.Err() == nil && v.link.alive(ctx) == nil {
			}
		})
		for range 10 {
			d.take(t, viewerID(i))
			d.keeper.Free()
		}
		d.take(t, "evictor")
		d.take(t, viewerID(i))
		go d.keeper.Take("evictor", screen.Untrusted{}, true)
		ended(t, p, Taken)
		stop()
		group.Wait()
		for len(p.texts) > 0 {
			<-p.texts
		}
	}
}

func (w *world) attachedViewer(id lease.ViewerID) *viewer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.viewers[slices.IndexFunc(w.viewers, func(v *viewer) bool { return v.grant.Viewer == id })]
}

// SEC-07: no ticket in any log line, refused or not.
func TestSEC07NoTicketInLogs(t *testing.T) {
	var log syncBuffer
	d := newDoor(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	secrets := []ticket.Secret{d.mint(t, "viewer-with-a-secret-name", ticket.Control), "a-bad-ticket"}
	p := d.enter(t, "viewer-with-a-secret-name", secrets[0], leaseProtocol)
	secrets = append(secrets, ticket.Secret(p.told("hello")["renewal"].(string)), "viewer-with-a-secret-name")
	if conn, _, err := d.open(t, secrets[1]); err == nil {
		conn.Read(t.Context())
	}
	d.open(t, secrets[0], func(o *websocket.DialOptions) { o.Host = "evil.example" })
	p.send(t, []byte{99})
	ended(t, p, NotFrameable)
	d.Close()
	text := log.String()
	if !strings.Contains(text, "viewer left") || !strings.Contains(text, "evil.example") {
		t.Errorf("nothing to look at: %s", text)
	}
	for _, secret := range secrets {
		if strings.Contains(text, string(secret)) {
			t.Errorf("a secret in the log: %s", text)
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Nothing is left of those who were here: goroutines and descriptors are back to
// where they were.
func TestNothingLeaks(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	w := newWorld(t)
	server := httptest.NewServer(w.Relay)
	d := &door{w, server.URL, server.Client()}
	for i := range 10 {
		v := viewerID(i)
		p := d.visit(t, v, ticket.Control, leaseProtocol)
		d.take(t, v)
		p.send(t, keyMessage(true, 'x'))
		switch i % 4 {
		case 0:
			p.conn.Close(websocket.StatusNormalClosure, "")
		case 1:
			p.conn.CloseNow()
		case 2:
			p.send(t, []byte{99})
		case 3:
			d.take(t, "other")
		}
		<-p.end
		if conn, _, err := d.open(t, "bad"); err == nil && i < 4 {
			conn.Read(t.Context())
		} else if err == nil {
			conn.CloseNow()
		}
		q := w.knock("half", ticket.Watch)
		q.conn.Close()
		<-q.end
	}
	d.Close()
	server.CloseClientConnections()
	server.Close()
	d.client.CloseIdleConnections()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > goroutines || openFiles(t) > descriptors+1 { // the lease's directory is open still
		if time.Now().After(deadline) {
			var stacks [1 << 16]byte
			t.Fatalf("%d goroutines were %d, %d descriptors were %d\n%s", runtime.NumGoroutine(), goroutines,
				openFiles(t), descriptors, stacks[:runtime.Stack(stacks[:], true)])
		}
		runtime.Gosched()
	}
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}
