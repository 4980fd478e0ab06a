// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
)

const (
	// cutTimeout bounds how long a change of hands waits until the browser has ended what
	// the agent attached; a browser that answers takes a few milliseconds.
	cutTimeout = 250 * time.Millisecond
	// farewellTimeout bounds the same for a client that leaves by itself.
	farewellTimeout = 5 * time.Second
)

// browsing is one connection of the agent to the browser. Its bytes are not looked at: what
// a takeover ends is the connection, with all that it attached (rules L15, W5).
type browsing struct {
	far    net.Conn     // to the session, which says by closing it that all is detached
	used   func() error // the agent sends something
	forget func()
	ended  chan struct{} // closed when far has ended

	mu   sync.Mutex // guards all below
	near net.Conn   // the caller; nil until there is one
	cut  bool       // nothing passes any more
	over time.Time  // when far is not waited for any more, once it is cut
}

// Browse opens a connection to the screen's browser, which it starts if it does not run. It
// is refused while a person holds, and cut when one takes the screen.
func (s *supervisor) Browse(ctx context.Context, _ controlserver.Caller) (controlserver.Carrier, error) {
	const what = "use the browser"
	seen, err := s.beginFenced()
	if err != nil {
		return nil, err
	}
	end, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer end() // from here on what the agent sends is a use
	far, err := s.dialCDP(ctx)
	if err != nil {
		if refusal := s.admit(seen); refusal != nil {
			return nil, refusal
		}
		return nil, refusalUnless(what, err)
	}
	used := func() error { // a screen that was frozen meanwhile goes on first
		end, err := s.begin(ctx, what)
		if err == nil {
			end()
		}
		return err
	}
	b := &browsing{far: far, used: used, ended: make(chan struct{})}
	go b.down()
	return b, s.fenceBrowser(b, seen)
}

// fenceBrowser makes a takeover cut a connection, also one that was opened meanwhile: it is
// among those to cut before it is asked whether one came.
func (s *supervisor) fenceBrowser(b *browsing, seen lease.Epoch) error {
	s.mu.Lock()
	s.browsing[b] = struct{}{}
	s.mu.Unlock()
	b.forget = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.browsing, b)
	}
	err := s.admit(seen)
	if err != nil {
		b.Drop()
	}
	return err
}

// cutBrowsing cuts the agent off from the browser: from here on nothing of it passes. The
// function it returns waits until the browser has ended what the agent attached, so that
// nothing the agent sent before is done afterwards.
func (s *supervisor) cutBrowsing() (wait func()) {
	s.mu.Lock()
	all, limit := slices.Collect(maps.Keys(s.browsing)), s.cutLimit
	s.mu.Unlock()
	for _, b := range all {
		b.finish(limit)
	}
	return func() {
		for _, b := range all {
			<-b.ended
		}
	}
}

// Carry carries bytes both ways until either side ends.
func (b *browsing) Carry(near net.Conn) {
	defer b.forget()
	defer near.Close()
	b.mu.Lock()
	b.near = near
	cut := b.cut
	b.mu.Unlock()
	if !cut {
		b.up(near)
	}
	b.finish(farewellTimeout)
	<-b.ended
}

// Drop ends a connection that nobody came for.
func (b *browsing) Drop() {
	b.finish(farewellTimeout)
	b.forget()
}

// finish ends what the caller sees now, and tells the session that it may detach. What the
// session does not do within limit is not waited for.
func (b *browsing) finish(limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.near != nil {
		_ = b.near.Close()
	}
	if over := time.Now().Add(limit); !b.cut || over.Before(b.over) {
		b.over = over
		_ = b.far.SetReadDeadline(over)
	}
	b.cut = true
	_ = b.far.SetWriteDeadline(time.Unix(1, 0)) // wakes whoever writes
	if half, ok := b.far.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// carried is how much is carried at once.
const carried = 32 << 10

// up carries what the agent sends.
func (b *browsing) up(near net.Conn) {
	buf := make([]byte, carried)
	for {
		n, err := near.Read(buf)
		if n > 0 {
			if b.used() != nil {
				return
			}
			if _, err := b.far.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// down carries what the browser sends, and once it is cut reads on to the session's end of
// the connection.
func (b *browsing) down() {
	defer close(b.ended)
	defer b.far.Close()
	buf := make([]byte, carried)
	for {
		n, err := b.far.Read(buf)
		if n > 0 {
			b.pass(buf[:n])
		}
		if err != nil {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = true // the browser has ended, perhaps before the caller came
	if b.near != nil {
		_ = b.near.Close()
	}
}

// pass hands bytes to the caller. One that is cut, or does not read any more, gets none.
func (b *browsing) pass(bytes []byte) {
	b.mu.Lock()
	near, cut := b.near, b.cut
	b.mu.Unlock()
	if near == nil || cut {
		return
	}
	if _, err := near.Write(bytes); err != nil {
		_ = near.Close()
	}
}

// CloseWrite ends our direction alone.
func (c *passedConn) CloseWrite() error {
	var failure error
	err := c.raw.Control(func(fd uintptr) { failure = unix.Shutdown(int(fd), unix.SHUT_WR) })
	if err != nil {
		return err
	}
	return failure
}
