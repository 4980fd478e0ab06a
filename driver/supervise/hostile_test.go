// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"image"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// siege is a screen with a real X server, and honest people on it.
type siege struct {
	*rig
	server  xvnc
	watcher *viewing
	agent   *control.Client
	addr    string // of the viewer listener
}

func newSiege(t *testing.T) *siege {
	t.Helper()
	r, server, _ := newRealScreen(t, false)
	s := &siege{rig: r, server: server, agent: r.agent()}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Listener{Relay: r.relay}.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	s.watcher, err = r.view(control.Hello{Viewer: "watcher"})
	must(t, err)
	s.calls(5) // opens what stays open
	return s
}

// times are what the honest ones waited for: the watcher for a part of the picture, the
// agent for its move.
type times struct{ picture, move []time.Duration }

func (s *siege) calls(n int) times {
	s.t.Helper()
	var all times
	for i := range n {
		begin := time.Now()
		_, err := s.watcher.ScreenshotOf(s.t.Context(), image.Rect(0, 0, 16, 16))
		must(s.t, err)
		all.picture = append(all.picture, time.Since(begin))
		begin = time.Now()
		_, err = s.agent.Input(s.t.Context(), control.InputRequest{Epoch: s.leaseNow().Epoch, Actions: action.List{action.Move{Point: action.Point{X: i % 100, Y: 5}}}})
		must(s.t, err)
		all.move = append(all.move, time.Since(begin))
	}
	return all
}

func (t times) String() string {
	p99 := func(list []time.Duration) time.Duration {
		slices.Sort(list)
		return list[len(list)*99/100].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p99 of the picture %v, of the agent's move %v", p99(t.picture), p99(t.move))
}

// holdings are what is taken in this process and in the X server.
type holdings struct{ goroutines, files, serverFiles int }

func (s *siege) held() holdings {
	s.t.Helper()
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.server.process.Pid), "fd"))
	must(s.t, err)
	return holdings{runtime.NumGoroutine(), openFiles(s.t), len(files)}
}

// over waits until no more is held than before.
func (s *siege) over(before holdings) {
	s.t.Helper()
	var now holdings
	defer func() {
		if s.t.Failed() {
			stacks := make([]byte, 1<<20)
			s.t.Logf("before %+v, now %+v\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
		}
	}()
	s.await("all that the hostile ones took is given back", func() bool {
		now = s.held()
		return now.goroutines <= before.goroutines && now.files <= before.files && now.serverFiles <= before.serverFiles
	})
}

// R8, R12, X34, RFB-04: viewers that never read, that declare 2 GiB of text, that send
// byte by byte, a thousand half-open connections and sprayed tickets, all at once. The
// others and the agent go on, and nothing is left of it.
func TestR8HostileViewers(t *testing.T) {
	s := newSiege(t)
	hostile := startHelper(t, "hostile", "OPERATOR="+s.op, "VIEWERS="+s.addr)
	before, calm := s.held(), s.calls(200)
	hostile.tell("come")
	hostile.says("here")
	during := s.calls(200)
	// A supervisor may open 1,024: a thousand silent ones must leave it most of them.
	if taken := s.held().files - before.files; taken > 300 {
		t.Errorf("they take %d descriptors", taken)
	}
	must(t, hostile.in.Close()) // enough
	for line := range hostile.lines {
		switch {
		case line == "done":
		case strings.HasPrefix(line, "wrong: "):
			t.Error(line)
		default:
			t.Log(line)
		}
	}
	s.over(before)
	t.Logf("calm: %s", calm)
	t.Logf("amid: %s", during)
	t.Logf("then: %s", s.calls(200))
	if l := s.leaseNow(); l.Holder != lease.Agent {
		t.Errorf("the lease is %+v", l)
	}
}

// L9, L7, L10, LSE-02: a holder that vanishes in the middle of a word, its connection broken
// and not closed, keeps the screen and is shown as away. What it pressed is released,
// the agent stays refused, and it goes on when it is back.
func TestL9VanishedHolderOnTheWire(t *testing.T) {
	r, _, tap := newRealScreen(t, true)
	w := &wire{t: t, tap: tap}
	for range 3 {
		ann, err := r.view(control.Hello{Viewer: "a", Mode: control.Control})
		must(t, err)
		taken := r.take("a")
		must(t, ann.Send(key(true, 'a')))
		w.seen = nil
		w.await(0)
		must(t, ann.Close())
		if line := tap.next(); line != "key 0 a" {
			t.Errorf("the wire has %q", line)
		}
		r.await("she is away, and holds", func() bool { l := r.leaseNow(); return l.Holder == lease.Human && !l.Away.IsZero() })
		_, err = r.agent().Input(t.Context(), control.InputRequest{Epoch: taken.Epoch, Actions: action.List{action.Key{Keys: "d"}}})
		if !isKind(err, control.HumanHasControl) {
			t.Errorf("the agent: %v", err)
		}
		back, err := r.view(control.Hello{Viewer: "a", Mode: control.Control})
		must(t, err)
		r.await("she is back", func() bool { l := r.leaseNow(); return l.Epoch == taken.Epoch && l.Away.IsZero() })
		must(t, back.Send(slices.Concat(key(true, 'a'), key(false, 'a'))))
		w.seen = nil
		w.await(0)
		r.release("a")
		must(t, back.Close())
		w.mark()
	}
}
