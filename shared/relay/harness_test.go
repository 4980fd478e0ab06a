// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// fakeX is an RFB server that records what each connection sends.
type fakeX struct {
	plain bool // it knows no QEMU keys

	mu    sync.Mutex // guards all below
	heard *sync.Cond
	conns []*fakeConn
	size  rfb.Size
	stuck bool   // nothing is read any more
	gone  bool   // nobody can connect
	begun []byte // what the relay has begun to write
}

// fakeConn is one connection to it.
type fakeConn struct {
	x        *fakeX
	conn     net.Conn
	opening  []byte        // the handshake's bytes of the client
	messages []rfb.Message // after it
	input    bool          // it is the relay's own
	ended    bool
	layout   bool // a new size has to be told
	written  int  // bytes the relay has sent
	taken    int  // of these, read
	recorded int  // of these, all that make whole messages
	writing  sync.Mutex
}

func newFakeX() *fakeX {
	x := &fakeX{size: rfb.Size{WidthPx: 800, HeightPx: 600}}
	x.heard = sync.NewCond(&x.mu)
	return x
}

func (x *fakeX) dial(context.Context) (net.Conn, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return nil, errors.New("no such screen")
	}
	ours, theirs := net.Pipe()
	c := &fakeConn{x: x, conn: theirs}
	x.conns = append(x.conns, c)
	go c.serve()
	return &tapConn{ours, c}, nil
}

// tapConn is the relay's end of a connection.
type tapConn struct {
	net.Conn
	far *fakeConn
}

// Write says that it begins, because it may wait.
func (c *tapConn) Write(b []byte) (int, error) {
	x := c.far.x
	x.tell(func() { x.begun = append(x.begun, b...) })
	n, err := c.Conn.Write(b)
	x.tell(func() { c.far.written += n })
	return n, err
}

// Read notes the handshake's bytes.
func (c *fakeConn) Read(b []byte) (int, error) {
	c.x.await(func() bool { return !c.x.stuck })
	c.x.tell(func() { c.recorded = c.taken })
	n, err := c.conn.Read(b)
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	c.taken += n
	if c.messages == nil {
		c.opening = append(c.opening, b[:n]...)
	}
	return n, err
}

func (c *fakeConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.conn.Write(b)
}

func (c *fakeConn) serve() {
	defer func() {
		c.conn.Close()
		c.x.mu.Lock()
		c.ended = true
		c.x.mu.Unlock()
		c.x.heard.Broadcast()
	}()
	c.x.mu.Lock()
	size := c.x.size
	c.x.mu.Unlock()
	if _, err := rfb.Welcome(c, rfb.ServerInit{Size: size, Format: rfb.RGBX, Name: "inside\x1b[31m"}); err != nil {
		return
	}
	reader := rfb.NewMessageReader(c)
	for {
		m, err := reader.Next()
		if err != nil {
			return
		}
		m = bytes.Clone(m)
		c.x.mu.Lock()
		c.messages = append(c.messages, m)
		if m.Type() == rfb.TypeSetEncodings {
			c.input = slices.Equal(slices.Collect(m.Encodings()), inputEncodings)
			c.layout = true
		}
		c.x.mu.Unlock()
		c.x.heard.Broadcast()
		if !c.answer(m) {
			return
		}
	}
}

// answer behaves as a server does: fences come back, and whoever waits for pixels is
// told a new size first.
func (c *fakeConn) answer(m rfb.Message) bool {
	if f, ok := m.Fence(); ok && f.Flags&rfb.FenceRequest != 0 {
		_, err := c.Write(f.Reply().Append(nil))
		return err == nil
	}
	if r, ok := m.Resize(); ok {
		c.x.mu.Lock()
		c.x.size = r.Size
		for _, other := range c.x.conns {
			other.layout = true
		}
		c.x.mu.Unlock()
		return c.update()
	}
	if m.Type() == rfb.TypeFramebufferUpdateRequest {
		return c.update()
	}
	return true
}

// update tells the size where it has to be told, and confirms key codes.
func (c *fakeConn) update() bool {
	c.x.mu.Lock()
	due, size := c.layout && c.input, c.x.size
	c.layout = false
	plain := c.x.plain
	c.x.mu.Unlock()
	if !due {
		return true
	}
	b := []byte{rfb.TypeFramebufferUpdate, 0, 0, 2}
	if plain {
		b[3] = 1
	} else {
		b = appendRect(b, image.Rectangle{}, rfb.QEMUKey)
	}
	b = appendRect(b, image.Rect(0, 0, size.WidthPx, size.HeightPx), rfb.ExtendedDesktopSize)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(size.WidthPx))
	b = binary.BigEndian.AppendUint16(b, uint16(size.HeightPx))
	_, err := c.Write(append(b, 0, 0, 0, 0))
	return err == nil
}

func appendRect(b []byte, area image.Rectangle, e rfb.Encoding) []byte {
	for _, n := range []int{area.Min.X, area.Min.Y, area.Dx(), area.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(e))
}

// await waits until the server is in a state.
func (x *fakeX) await(state func() bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for !state() {
		x.heard.Wait()
	}
}

// tell changes the server's state and wakes those who wait for one.
func (x *fakeX) tell(change func()) {
	x.mu.Lock()
	change()
	x.mu.Unlock()
	x.heard.Broadcast()
}

// inputs is all that came over the relay's own connections, in order, without what
// is no input.
func (x *fakeX) inputs() []rfb.Message {
	x.await(func() bool {
		return !slices.ContainsFunc(x.conns, func(c *fakeConn) bool { return c.recorded < c.written && !c.ended })
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inputsLocked()
}

// stickBehindNext makes the server read the next message of each connection and no other.
func (x *fakeX) stickBehindNext() {
	for stuck := false; !stuck; {
		x.inputs() // it waits for more
		x.tell(func() {
			// What the relay answers by itself may have come in between.
			stuck = !slices.ContainsFunc(x.conns, func(c *fakeConn) bool { return !c.ended && (c.recorded != c.taken || c.recorded < c.written) })
			x.stuck = stuck
		})
	}
}

func (x *fakeX) inputsLocked() []rfb.Message {
	var list []rfb.Message
	for _, c := range x.conns {
		for _, m := range c.messages {
			if c.input && m.Input() {
				list = append(list, m)
			}
		}
	}
	return list
}

// output is the i-th viewer's own connection.
func (x *fakeX) output(i int) *fakeConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		if c.input {
			continue
		}
		if i == 0 {
			return c
		}
		i--
	}
	return nil
}

// stream is all bytes a connection sent after its handshake.
func (c *fakeConn) stream() []byte {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	var b []byte
	for _, m := range c.messages {
		b = append(b, m...)
	}
	return b
}

// world is a relay with its lease and a fake screen.
type world struct {
	*Relay
	x       *fakeX
	keeper  *lease.Keeper
	tickets *ticket.Store
}

func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	w := &world{x: newFakeX(), tickets: ticket.NewStore()}
	options := Options{Dial: w.x.dial, Tickets: w.tickets, Name: "bot"}
	for _, c := range change {
		c(&options)
	}
	active := options.Activity
	options.Activity = func() {
		if active != nil {
			active()
		}
		w.x.tell(func() {})
	}
	w.keeper = newKeeper(t, lease.DefaultPolicy(), &w.Relay)
	options.Lease = w.keeper
	w.Relay = New(options)
	t.Cleanup(w.Close)
	return w
}

// newKeeper opens a lease whose changes of hands go to the relay.
func newKeeper(t testing.TB, policy lease.Policy, relay **Relay) *lease.Keeper {
	t.Helper()
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	k, err := lease.OpenKeeper(lease.NewStore(dir, lease.Origin{Fresh: true}), lease.Options{
		Policy:   policy,
		Handover: func(from, to lease.Lease) { (*relay).Handover(from, to) },
		Notify:   func(n lease.Notice) { (*relay).Notice(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) take(t testing.TB, v lease.ViewerID) lease.Lease {
	t.Helper()
	l, err := w.keeper.Take(v, screen.Untrusted{}, true)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) epoch() lease.Epoch {
	l, _ := w.keeper.Lease()
	return l.Epoch
}

// person is a viewer on a plain stream.
type person struct {
	conn net.Conn
	end  chan End
	mu   sync.Mutex // guards seen
	seen bytes.Buffer
}

// come joins as a viewer, with a US keyboard unless it says another, and reads the
// picture from then on.
func (w *world) come(t testing.TB, v lease.ViewerID, mode ticket.Mode, layout ...string) *person {
	t.Helper()
	p := w.knock(v, mode, layout...)
	if _, _, err := rfb.Join(p.conn, rfb.MaxSize); err != nil {
		t.Fatal(err)
	}
	go p.read()
	w.attached(v)
	return p
}

// knock connects and leaves the handshake to the test.
func (w *world) knock(v lease.ViewerID, mode ticket.Mode, layout ...string) *person {
	a := Admission{Grant: ticket.Grant{Viewer: v, Mode: mode}, Layout: append(layout, "us")[0]}
	ours, theirs := net.Pipe()
	p := &person{conn: ours, end: make(chan End, 1)}
	go func() {
		p.end <- w.ServeStream(context.Background(), theirs, a)
	}()
	return p
}

// attached waits until the viewer is listed, and the input connection there that one
// who may control brings with it.
func (w *world) attached(v lease.ViewerID) {
	w.x.await(func() bool {
		i := slices.IndexFunc(w.Viewers(), func(a Attached) bool { return a.Viewer == v.Handle() })
		return i >= 0 && (w.Viewers()[i].Mode == ticket.Watch || slices.ContainsFunc(w.x.conns, func(c *fakeConn) bool { return c.input }))
	})
}

func (p *person) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.conn.Read(buf)
		p.mu.Lock()
		p.seen.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *person) saw() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.seen.Bytes())
}

func (p *person) send(t testing.TB, messages ...[]byte) {
	t.Helper()
	if _, err := p.conn.Write(slices.Concat(messages...)); err != nil {
		t.Fatal(err)
	}
}

// sync sends a request for pixels and waits until the viewer's server has it: all
// before it has been handled then.
func (p *person) sync(t testing.TB, w *world, server *fakeConn) {
	t.Helper()
	marks := func() (n int) {
		for _, m := range server.messages {
			if u, ok := m.UpdateRequest(); ok && u.Area.Min.X == 4321 {
				n++
			}
		}
		return n
	}
	w.x.mu.Lock()
	before := marks()
	w.x.mu.Unlock()
	p.send(t, rfb.UpdateRequest{Area: image.Rect(4321, 0, 4322, 1)}.Append(nil))
	w.x.await(func() bool { return marks() > before || server.ended })
}

func keyMessage(down bool, keysym uint32) []byte {
	return rfb.KeyEvent{Down: down, Keysym: keysym}.Append(nil)
}

func qemuMessage(down bool, keysym, keycode uint32) []byte {
	return rfb.KeyEvent{Down: down, Keysym: keysym, Keycode: keycode, QEMU: true}.Append(nil)
}

func pointerMessage(buttons, x, y uint16) []byte {
	return rfb.PointerEvent{Buttons: buttons, X: x, Y: y}.Append(nil)
}

// joined is all messages as one.
func joined(list []rfb.Message) []byte {
	var b []byte
	for _, m := range list {
		b = append(b, m...)
	}
	return b
}

var _ io.ReadWriter = (*fakeConn)(nil)

func viewerID(i int) lease.ViewerID { return lease.ViewerID(rune('A' + i)) }

// sink is a server that only listens.
type sink struct {
	bytes.Buffer
	net.Conn
}

func (s *sink) Write(b []byte) (int, error)        { return s.Buffer.Write(b) }
func (s *sink) Read([]byte) (int, error)           { return 0, io.EOF }
func (s *sink) Close() error                       { return nil }
func (s *sink) SetWriteDeadline(_ time.Time) error { return nil }
