// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/rfb"
)

// gate is the one way into the screen. Who may pass is asked for every message,
// under the lock that a change of hands takes too: so what has passed under one
// epoch is written before what belongs to the next.
type gate struct {
	lease   *lease.Keeper
	dial    Dialer
	most    rfb.Size
	log     *slog.Logger
	dialing chan struct{} // has room for the one that connects

	writing atomic.Pointer[net.Conn] // what a write waits for, if any
	hurried atomic.Int32             // changes of hands that wait for the input lock
	steered atomic.Int64             // Steered, in nanoseconds
	typed   atomic.Int64             // Typed, in nanoseconds

	// mu is the input lock. It guards all below and, other than most locks, is held
	// across writes; a change of hands that waits for one cuts it short.
	mu      sync.Mutex
	conn    *inputConn // nil: the next input connects
	closed  bool
	pressed pressed
	by      *viewer // who pressed; nil: the agent
	// repeated says that a holder's own connection was sent a pointer position since
	// the last change of hands (rule R14).
	repeated bool
	// before is the size the desktop had when a human took it (rule L17).
	before rfb.Size
	// resized says that it was asked to take another since. What the server has told of
	// its size may be older.
	resized bool
}

func newGate(o Options) *gate {
	dial := o.Input
	if dial == nil {
		dial = o.Dial
	}
	return &gate{lease: o.Lease, dial: dial, most: o.MaxSize, log: o.Log, dialing: make(chan struct{}, 1)}
}

// errDropped says that a message may not pass now.
var errDropped = errors.New("not the holder")

// fromViewer passes a viewer's input, or reports errDropped.
func (g *gate) fromViewer(ctx context.Context, v *viewer, m rfb.Message) error {
	if resize, ok := m.Resize(); ok && !g.mayResize(v, resize) {
		return errDropped
	}
	return g.pass(ctx, v, m, func() error {
		if !v.mayInput() {
			return errDropped
		}
		return nil
	})
}

// mayResize bounds what a few bytes can cost (rule R5a, RFB-09).
func (g *gate) mayResize(v *viewer, r rfb.Resize) bool {
	return v.announced.resize && len(r.Screens) > 0 && r.Size.WidthPx > 0 && r.Size.HeightPx > 0 && r.Size.Within(g.most)
}

// fromAgent passes a message of an action that was decided under the epoch.
func (g *gate) fromAgent(ctx context.Context, seen lease.Epoch, m rfb.Message) error {
	return g.pass(ctx, nil, m, func() error { return g.lease.Admit(seen) })
}

// pass writes m when admit allows it, over a new connection where there is none.
func (g *gate) pass(ctx context.Context, by *viewer, m rfb.Message, admit func() error) error {
	for {
		sent, err := g.try(by, m, admit)
		if sent || err != nil {
			return err
		}
		if err := g.connect(ctx); err != nil {
			return err
		}
	}
}

// try reports false without an error when there is no connection, or none any more.
func (g *gate) try(by *viewer, m rfb.Message, admit func() error) (sent bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := admit(); err != nil {
		return false, err
	}
	if g.conn == nil {
		return false, nil
	}
	if m = g.formOf(m); m == nil || !g.pressed.track(m) {
		return false, errDropped
	}
	g.by = by
	if by != nil {
		g.noteDoing(m)
	}
	g.resized = g.resized || m.Type() == rfb.TypeSetDesktopSize
	return g.send(m), nil
}

// formOf is a key in the form the server takes; nil where it has none.
func (g *gate) formOf(m rfb.Message) rfb.Message {
	key, ok := m.Key()
	if !ok || !key.QEMU || g.conn.qemu {
		return m
	}
	if key.Keysym == 0 {
		return nil
	}
	key.QEMU = false
	return key.Append(nil)
}

func (g *gate) writeInput(b []byte) error { return g.write(g.conn.conn, b, g.conn.client.Send) }

// send needs mu and a connection. When it fails the connection is gone and with it
// all that was pressed.
func (g *gate) send(b []byte) bool {
	if err := g.writeInput(b); err != nil {
		g.log.Warn("input connection closed", "err", err)
		g.drop()
		return false
	}
	return true
}

// drop closes the connection, on which the server releases everything. It needs mu.
func (g *gate) drop() {
	g.conn.close()
	g.conn = nil
	g.pressed.clear()
	// A new connection's handshake takes several turns of the server's loop: what was
	// repeated before is done by then.
	g.repeated = false
}

// connect opens the input connection where there is none.
func (g *gate) connect(ctx context.Context) error {
	select {
	case g.dialing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.dialing }()
	g.mu.Lock()
	have, closed := g.conn != nil, g.closed
	g.mu.Unlock()
	if have {
		return nil
	}
	if closed {
		return net.ErrClosed
	}
	conn, err := dialInput(ctx, g.dial, g.most)
	if err != nil {
		return err
	}
	if !g.adopt(conn) {
		conn.close()
		return net.ErrClosed
	}
	go g.follow(conn)
	return nil
}

func (g *gate) adopt(conn *inputConn) bool {
	l, _ := g.lease.Lease()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.conn = conn
	if l.Held() && g.before == (rfb.Size{}) {
		// Sizes are set through here alone, so it is still the agent's.
		g.before = conn.size()
	}
	return true
}

// follow reads the connection to its end.
func (g *gate) follow(conn *inputConn) {
	conn.read()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == conn {
		g.drop()
	}
	conn.close()
}

// ready connects and returns the desktop's size.
func (g *gate) ready(ctx context.Context) (rfb.Size, error) {
	for {
		if err := g.connect(ctx); err != nil {
			return rfb.Size{}, err
		}
		if size := g.size(); size != (rfb.Size{}) {
			return size, nil
		}
	}
}

// size is the desktop's, zero while there is no connection.
func (g *gate) size() rfb.Size {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == nil {
		return rfb.Size{}
	}
	return g.conn.size()
}

// repeat sends the holder's position to its own connection too, without buttons, so
// that the server shows it a cursor of its own (rule R14).
func (g *gate) repeat(v *viewer, at rfb.PointerEvent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !v.mayInput() {
		return nil
	}
	at.Buttons = 0
	g.repeated = true
	return g.write(v.upstream, at.Append(nil), func(b []byte) error {
		_, err := v.upstream.Write(b)
		return err
	})
}

// hurryTimeout is how much longer a write may wait when hands change.
const hurryTimeout = 50 * time.Millisecond

// write needs mu. It waits for a screen that is busy, but not while hands change.
func (g *gate) write(conn net.Conn, b []byte, send func([]byte) error) error {
	g.writing.Store(&conn)
	defer g.writing.Store(nil)
	conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if g.hurried.Load() > 0 {
		conn.SetWriteDeadline(time.Now().Add(hurryTimeout))
	}
	err := send(b)
	// What the reader of the input connection answers by itself has no deadline; it
	// ends with the next write's.
	conn.SetWriteDeadline(time.Time{})
	return err
}

// hurry takes the input lock soon: a write that waits is given up.
func (g *gate) hurry() {
	g.hurried.Add(1)
	// Whoever stored it after this looks at hurried after that.
	if conn := g.writing.Load(); conn != nil {
		(*conn).SetWriteDeadline(time.Now().Add(hurryTimeout))
	}
	g.mu.Lock()
}

func (g *gate) unhurry() {
	g.hurried.Add(-1)
	g.mu.Unlock()
}

// release lets go of what this viewer, or with nil the agent, still presses.
func (g *gate) release(by *viewer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == nil || g.by != by {
		return
	}
	if b := g.pressed.appendReleases(nil); len(b) > 0 && g.send(b) {
		g.pressed.clear()
	}
}

// handover is the moment between two holders: nobody is admitted. What the old one
// presses is released (rule L7); an agent gets the geometry it had (rule L17). What
// cannot be written in time closes the connection, which releases everything too.
func (g *gate) handover(from, to lease.Lease) {
	g.hurry()
	defer g.unhurry()
	if g.conn == nil {
		if !from.Held() || !to.Held() {
			g.before, g.resized = rfb.Size{}, false
		}
		return
	}
	b := g.pressed.appendReleases(nil)
	switch {
	case !from.Held():
		g.before, g.resized = g.conn.size(), false
	case !to.Held():
		if g.resized {
			b = g.conn.appendResize(b, g.before)
		}
		g.before, g.resized = rfb.Size{}, false
	}
	if len(b) > 0 && !g.send(b) {
		return
	}
	g.pressed.clear()
	if !g.repeated {
		return
	}
	g.repeated = false
	if err := g.conn.settle(g.writeInput); err != nil {
		g.log.Warn("input connection closed at a change of hands", "err", err)
		g.drop()
	}
}

// close ends the connection for good.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.conn != nil {
		g.drop()
	}
}
