// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"context"
	"fmt"
	"image"
	"net"
	"slices"
	"sync"
	"time"
)

// handshakeTimeout ends a server that is silent, for example because it counts us
// among those that failed to log in.
const handshakeTimeout = 5 * time.Second

// maxUpdates bounds the updates one picture may come in.
const maxUpdates = 64

// PictureEncodings is what a client that only takes pictures announces. On a Unix
// socket nothing beats raw pixels: no work on either side but the copy. Without a
// cursor extension the server draws the pointer into the picture, and without
// fences it does not pace us. As long as nobody wants more than the lowest compression,
// TigerVNC compares no picture with the one before (CompareFB in Xvnc(1)), which would
// cost more than the pixels.
var PictureEncodings = []Encoding{Raw, DesktopSize, LastRect, CompressLevel0}

// Options of a client. The zero value takes pictures of desktops up to MaxSize.
type Options struct {
	// MaxSize is the largest desktop accepted; zero is the package's MaxSize.
	MaxSize Size
	// Encodings is what is announced; nil is PictureEncodings. Pixels are understood
	// as Raw and CopyRect only.
	Encodings []Encoding
}

// Client is one connection to an RFB server. One goroutine may read (Screenshot,
// Read) while others Send.
type Client struct {
	conn   net.Conn
	server *serverReader
	init   ServerInit
	stale  bool  // an update may still come that an earlier picture asked for
	broken error // why nothing can be read any more

	mu sync.Mutex // guards writes to conn, so that messages never mix
}

// Connect shakes hands over conn, which is the client's from now on; after an
// error it is closed. The server has 5 seconds, or less by ctx.
func Connect(ctx context.Context, conn net.Conn, options Options) (*Client, error) {
	if options.MaxSize == (Size{}) {
		options.MaxSize = MaxSize
	}
	if options.Encodings == nil {
		options.Encodings = PictureEncodings
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	c := &Client{conn: conn}
	err := c.during(ctx, func() error { return c.start(options) })
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) start(options Options) error {
	_, init, err := Join(c.conn, options.MaxSize)
	if err != nil {
		return err
	}
	c.init = init
	c.server = newServerReader(c.conn, init.Size, options.MaxSize, slices.Clone(options.Encodings))
	return c.Send(AppendSetEncodings(AppendSetPixelFormat(nil, RGBX), options.Encodings))
}

// Close ends the connection; the server releases every key it pressed.
func (c *Client) Close() error { return c.conn.Close() }

// Size is the desktop's size as last told.
func (c *Client) Size() Size { return c.server.size }

// Init is what the server said at the handshake. The name is untrusted.
func (c *Client) Init() ServerInit { return c.init }

// Send writes whole messages. The conn's write deadline holds.
func (c *Client) Send(messages []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(messages)
	return err
}

// Read reads one message of the server and drops its pixels. It answers fences
// when they were announced, because a server stops sending without (RFB-03). After
// an error, also the end of ctx, nothing can be read any more.
func (c *Client) Read(ctx context.Context) (ServerMessage, error) {
	var msg ServerMessage
	err := c.during(ctx, func() (err error) {
		msg, err = c.read(void{})
		return err
	})
	return msg, err
}

func (c *Client) read(sink pixels) (ServerMessage, error) {
	msg, err := c.server.next(sink)
	if err != nil {
		return msg, err
	}
	asked := msg.Type == TypeFence && msg.Fence.Flags&FenceRequest != 0
	if asked && slices.Contains(c.server.announced, Fence) {
		err = c.Send(msg.Fence.Reply().Append(nil))
	}
	return msg, err
}

// Screenshot takes a picture of the whole desktop as it is after the call began.
// The picture is the caller's. An error, also the end of ctx while it is taken,
// ends the connection's use.
func (c *Client) Screenshot(ctx context.Context) (*image.RGBA, error) {
	size := c.Size()
	return c.take(ctx, newCanvas(image.Rect(0, 0, size.WidthPx, size.HeightPx), true))
}

// ScreenshotOf takes a picture of one area, whose place is the picture's bounds.
// What lies outside of the desktop is left off; nothing inside is an error.
func (c *Client) ScreenshotOf(ctx context.Context, area image.Rectangle) (*image.RGBA, error) {
	size := c.Size()
	return c.take(ctx, newCanvas(area.Intersect(image.Rect(0, 0, size.WidthPx, size.HeightPx)), false))
}

func (c *Client) take(ctx context.Context, picture *canvas) (*image.RGBA, error) {
	if c.broken == nil && c.stale {
		return nil, fmt.Errorf("screenshot: %w", ErrStale)
	}
	if picture.wanted.Empty() {
		return nil, fmt.Errorf("screenshot: the area lies outside of the %s desktop", c.Size())
	}
	err := c.during(ctx, func() error { return c.collect(picture) })
	if err != nil {
		return nil, fmt.Errorf("screenshot: %w", err)
	}
	return picture.img, nil
}

// collect asks for what is missing until nothing is. An update may come without
// pixels, or with some of them only (RFB-16).
func (c *Client) collect(picture *canvas) error {
	for try := range maxUpdates {
		// A server that was not done answers again to a second request, or does not.
		c.stale = try > 0
		if err := c.Send(UpdateRequest{Area: picture.gap()}.Append(nil)); err != nil {
			return err
		}
		if err := c.readUpdate(picture); err != nil {
			return err
		}
		if picture.wanted.Empty() {
			return fmt.Errorf("the area lies outside of the %s desktop since it was resized", c.Size())
		}
		if picture.done() {
			return nil
		}
	}
	return fmt.Errorf("%w after %d updates: %d of %d pixels missing", ErrIncomplete, maxUpdates,
		picture.missing, picture.wanted.Dx()*picture.wanted.Dy())
}

// readUpdate reads up to and including the next update.
func (c *Client) readUpdate(picture *canvas) error {
	for {
		msg, err := c.read(picture)
		if err != nil || msg.Type == TypeFramebufferUpdate {
			return err
		}
	}
}

// during runs work and lets the end of ctx break what blocks on the connection.
// After an error the stream is out of step, so there is no second try.
func (c *Client) during(ctx context.Context, work func() error) error {
	if c.broken != nil {
		return c.broken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	err := work()
	if !release() { // the deadline is set or about to be
		err = context.Cause(ctx)
	}
	if err != nil {
		c.broken = fmt.Errorf("connection is unusable since: %w", err)
	}
	return err
}
