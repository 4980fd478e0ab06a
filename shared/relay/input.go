// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/rfb"
)

// Limits of the input connection.
const (
	connectTimeout = 5 * time.Second        // from the first byte to the first answer
	settleTimeout  = 100 * time.Millisecond // the fences of a change of hands
)

// inputEncodings is what the input connection announces: to be told of the size, to
// be allowed to set it (rule R5a), key codes, and fences. Without the state of the lock
// keys Xvnc guesses it from every letter, and a capital typed without Shift leaves
// Caps Lock on. For the compression see rfb.PictureEncodings.
var inputEncodings = []rfb.Encoding{rfb.Raw, rfb.ExtendedDesktopSize, rfb.QEMUKey, rfb.LEDState, rfb.Fence, rfb.CompressLevel0}

// corner is the part of the picture the input connection asks for: a server tells a
// new size only to those that wait for pixels.
var corner = image.Rect(0, 0, 1, 1)

// inputConn is a connection that input goes through.
type inputConn struct {
	conn   net.Conn
	client *rfb.Client
	qemu   bool          // the server takes key codes
	fences chan uint32   // numbers of answered fences
	fence  uint32        // the last one sent; the input lock guards it
	done   chan struct{} // closed when nothing more can be read

	mu     sync.Mutex // guards layout
	layout rfb.Layout
}

// dialInput connects and waits for the server's first answer, which names the
// screens and confirms the extensions.
func dialInput(ctx context.Context, dial Dialer, most rfb.Size) (*inputConn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(dialCtx)
	if err != nil {
		return nil, fmt.Errorf("open input connection: %w", err)
	}
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	client, err := rfb.Connect(ctx, conn, rfb.Options{MaxSize: most, Encodings: inputEncodings})
	if err != nil {
		return nil, fmt.Errorf("open input connection: %w", err)
	}
	c := &inputConn{
		conn: conn, client: client, fences: make(chan uint32, 1), done: make(chan struct{}),
		layout: rfb.Layout{Size: client.Init().Size},
	}
	if err := c.begin(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("open input connection: %w", err)
	}
	return c, nil
}

func (c *inputConn) begin(ctx context.Context) error {
	if err := c.client.Send(rfb.UpdateRequest{Area: corner}.Append(nil)); err != nil {
		return err
	}
	for {
		msg, err := c.client.Read(ctx)
		if err != nil {
			return err
		}
		c.note(msg)
		c.qemu = c.qemu || slices.Contains(msg.Acknowledged, rfb.QEMUKey)
		if msg.Type == rfb.TypeFramebufferUpdate {
			return c.client.Send(rfb.UpdateRequest{Incremental: true, Area: corner}.Append(nil))
		}
	}
}

// read follows the server until the connection ends.
func (c *inputConn) read() {
	defer close(c.done)
	for {
		msg, err := c.client.Read(context.Background()) // close ends it
		if err != nil {
			return
		}
		c.note(msg)
		if msg.Type != rfb.TypeFramebufferUpdate {
			continue
		}
		if c.client.Send(rfb.UpdateRequest{Incremental: true, Area: corner}.Append(nil)) != nil {
			return
		}
	}
}

// note takes in what a message says besides pixels.
func (c *inputConn) note(msg rfb.ServerMessage) {
	if msg.Resized != nil && msg.Resized.Status == 0 {
		c.mu.Lock()
		c.layout = *msg.Resized
		c.mu.Unlock()
	}
	if msg.Type == rfb.TypeFence && msg.Fence.Flags&rfb.FenceRequest == 0 && len(msg.Fence.Payload) == 4 {
		select {
		case <-c.fences: // nobody waits for an older one
		default:
		}
		c.fences <- binary.BigEndian.Uint32(msg.Fence.Payload)
	}
}

// size is the desktop's size as last told.
func (c *inputConn) size() rfb.Size {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.layout.Size
}

// appendResize writes what gives the desktop a size; nothing where the server has
// not named its screen.
func (c *inputConn) appendResize(b []byte, size rfb.Size) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.layout.Screens) == 0 {
		return b
	}
	whole := image.Rect(0, 0, size.WidthPx, size.HeightPx)
	screens := []rfb.Screen{{ID: c.layout.Screens[0].ID, Area: whole, Flags: c.layout.Screens[0].Flags}}
	return rfb.Resize{Size: size, Screens: screens}.Append(b)
}

var errSettle = errors.New("the screen does not answer a fence")

// settle waits until the screen has acted on what was written on other connections
// before this call. Xvnc handles every connection that is readable in each turn of
// its loop: when it has answered a second fence, which was sent after the first
// answer, the turn that saw the earlier writes is over.
func (c *inputConn) settle(write func([]byte) error) error {
	timer := time.NewTimer(settleTimeout)
	defer timer.Stop()
	for range 2 {
		c.fence++
		request := rfb.FenceMessage{Flags: rfb.FenceRequest | rfb.FenceBlockBefore}
		request.Payload = binary.BigEndian.AppendUint32(nil, c.fence)
		if err := write(request.Append(nil)); err != nil {
			return err
		}
		if err := c.awaitFence(timer); err != nil {
			return err
		}
	}
	return nil
}

func (c *inputConn) awaitFence(timer *time.Timer) error {
	for {
		select {
		case got := <-c.fences:
			if got == c.fence {
				return nil
			}
		case <-timer.C:
			return errSettle
		case <-c.done:
			return net.ErrClosed
		}
	}
}

// close ends the connection; the server releases all that it pressed.
func (c *inputConn) close() { c.client.Close() }
