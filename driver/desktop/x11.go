// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

func init() {
	// The library logs a closed connection to stderr and looks for an authority
	// file of its own; both happen on every desktop and mean nothing here.
	xgb.Logger = log.New(io.Discard, "", 0)
}

// xclient is one connection to an X server.
type xclient struct {
	conn *xgb.Conn
	root xproto.Window

	mu    sync.Mutex // guards atoms
	atoms map[string]xproto.Atom
}

// dialX connects to display n with the cookie. With a server pid other than 0
// the peer has to be that process: on a shared network namespace somebody else
// may sit on the abstract name (rule X16).
func dialX(ctx context.Context, n display.Number, cookie display.Cookie, server int) (*xclient, error) {
	tables.Lock()
	if tables.filled {
		tables.Unlock()
		return connectX(ctx, n, cookie, server)
	}
	defer tables.Unlock()
	x, err := connectX(ctx, n, cookie, server)
	if err != nil {
		return nil, err
	}
	if err := fillTables(x); err != nil {
		x.close()
		return nil, fmt.Errorf("connect to display %s: %w", n, err)
	}
	tables.filled = true
	return x, nil
}

func connectX(ctx context.Context, n display.Number, cookie display.Cookie, server int) (*xclient, error) {
	conn, err := dialXSocket(ctx, n, server)
	if err != nil {
		return nil, fmt.Errorf("connect to display %s: %w", n, err)
	}
	setup, err := setupRequest(n, cookie)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to display %s: %w", n, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	x, err := xgb.NewConnNet(&setupConn{Conn: conn, setup: setup})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to display %s: %w", n, err)
	}
	screens := xproto.Setup(x).Roots
	if len(screens) == 0 {
		x.Close()
		return nil, fmt.Errorf("connect to display %s: no screen", n)
	}
	return &xclient{conn: x, root: screens[0].Root, atoms: map[string]xproto.Atom{}}, nil
}

// dialXSocket tries the names a display has in the order Xlib does.
func dialXSocket(ctx context.Context, n display.Number, server int) (net.Conn, error) {
	path := fmt.Sprintf("/tmp/.X11-unix/X%d", int(n))
	var failed error
	for _, name := range []string{"@" + path, path} {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", name)
		if err == nil && server != 0 {
			err = checkPeer(conn, server)
			if err != nil {
				_ = conn.Close()
			}
		}
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

func checkPeer(conn net.Conn, pid int) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var wrong error
	if err := raw.Control(func(fd uintptr) { wrong = peerIs(int(fd), pid) }); err != nil {
		return err
	}
	return wrong
}

// setupConn replaces the first message, the connection setup that the library
// writes with what it found in the environment, by ours.
type setupConn struct {
	net.Conn
	setup []byte
}

func (c *setupConn) Write(b []byte) (int, error) {
	if c.setup == nil {
		return c.Conn.Write(b)
	}
	setup := c.setup
	c.setup = nil
	if _, err := c.Conn.Write(setup); err != nil {
		return 0, err
	}
	return len(b), nil
}

// setupRequest is the connection setup of the X protocol, chapter 8, little
// endian, with a cookie.
//
//	'l' 0 | 11 0 | len name | len data | 0 0 | name, padded | data, padded
func setupRequest(n display.Number, cookie display.Cookie) ([]byte, error) {
	const name, secretLength = "MIT-MAGIC-COOKIE-1", 16
	// The secret leaves its type only in the form of an authority entry, whose
	// last field it is.
	entries := display.CookieEntries(n, "", cookie)
	entry, err := display.EncodeAuthority(entries[len(entries)-1:])
	if err != nil {
		return nil, err
	}
	if len(entry) < secretLength {
		return nil, errors.New("cookie is too short")
	}
	request := binary.LittleEndian.AppendUint16([]byte{'l', 0}, 11)
	request = binary.LittleEndian.AppendUint16(request, 0)
	request = binary.LittleEndian.AppendUint16(request, uint16(len(name)))
	request = binary.LittleEndian.AppendUint16(request, secretLength)
	request = append(request, 0, 0)
	request = append(request, name...)
	for len(request)%4 != 0 {
		request = append(request, 0)
	}
	return append(request, entry[len(entry)-secretLength:]...), nil
}

func (x *xclient) close() { x.conn.Close() }

// atom returns the atom of a name, made if it does not exist yet.
func (x *xclient) atom(name string) (xproto.Atom, error) {
	x.mu.Lock()
	known, ok := x.atoms[name]
	x.mu.Unlock()
	if ok {
		return known, nil
	}
	reply, err := xproto.InternAtom(x.conn, false, uint16(len(name)), name).Reply()
	if err != nil {
		return 0, fmt.Errorf("intern %s: %w", name, err)
	}
	x.mu.Lock()
	x.atoms[name] = reply.Atom
	x.mu.Unlock()
	return reply.Atom, nil
}

// maxProperty bounds a property in 4-byte units: a client can make them huge.
const maxProperty = 16 << 10

// property reads a property of any type; a missing one is an empty reply.
func (x *xclient) property(w xproto.Window, name string) (*xproto.GetPropertyReply, error) {
	atom, err := x.atom(name)
	if err != nil {
		return nil, err
	}
	reply, err := xproto.GetProperty(x.conn, false, w, atom, xproto.GetPropertyTypeAny, 0, maxProperty).Reply()
	if err != nil {
		return nil, fmt.Errorf("read %s of window %#x: %w", name, uint32(w), err)
	}
	return reply, nil
}

// numbers reads a property of 32-bit values.
func (x *xclient) numbers(w xproto.Window, name string) ([]uint32, error) {
	reply, err := x.property(w, name)
	if err != nil || reply.Format != 32 {
		return nil, err
	}
	var values []uint32
	for rest := reply.Value; len(rest) >= 4; rest = rest[4:] {
		values = append(values, xgb.Get32(rest))
	}
	return values, nil
}

// text reads a property of bytes.
func (x *xclient) text(w xproto.Window, name string) (string, error) {
	reply, err := x.property(w, name)
	if err != nil || reply.Format != 8 {
		return "", err
	}
	return string(reply.Value), nil
}

// watched does what waits for the X server: the library's replies cannot be interrupted,
// a dead server ends them.
func watched[T any](ctx context.Context, d *Desktop, what string, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-d.done:
		return none, fmt.Errorf("%s: the desktop has ended", what)
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}
