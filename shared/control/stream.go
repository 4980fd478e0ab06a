// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Stream makes a call that becomes a byte stream and returns its caller's end.
// ctx bounds only the opening.
func (c *Client) Stream(ctx context.Context, call Call, q url.Values, body any) (net.Conn, error) {
	req, err := newRequest(ctx, call, q, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", UpgradeProtocol)
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", call, err)
	}
	stop := interruptible(ctx, conn)
	upgraded, err := upgrade(conn, call, req)
	if interrupted := stop(); interrupted && err == nil {
		err = fmt.Errorf("call %s: %w", call, ctx.Err())
	}
	if err != nil {
		conn.Close()
		return nil, causeOf(ctx, err)
	}
	return upgraded, nil
}

func upgrade(conn net.Conn, call Call, req *http.Request) (net.Conn, error) {
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("call %s: %w", call, err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", call, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, refusal(call, resp)
	}
	return Prepend(conn, r), nil
}

// Prepend returns conn with the bytes in front that r has already taken from it.
func Prepend(conn net.Conn, r *bufio.Reader) net.Conn {
	if r.Buffered() == 0 {
		return conn
	}
	return &prepended{Conn: conn, r: r}
}

// prepended reads what was buffered first and then only from the connection.
type prepended struct {
	net.Conn
	r *bufio.Reader // nil once it is empty
}

func (p *prepended) Read(b []byte) (int, error) {
	if p.r == nil {
		return p.Conn.Read(b)
	}
	// Never more than what is there: a bufio.Reader would read ahead.
	n, err := p.r.Read(b[:min(len(b), p.r.Buffered())])
	if p.r.Buffered() == 0 {
		p.r = nil
	}
	return n, err
}

// CloseWrite ends one direction where the connection below can.
func (p *prepended) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("close write: %T cannot", p.Conn)
}

// interruptible makes the end of ctx break what blocks on conn. The function it
// returns ends that, gives conn its time back and tells whether ctx had ended.
func interruptible(ctx context.Context, conn net.Conn) (stop func() bool) {
	release := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() bool {
		if !release() {
			return true
		}
		conn.SetDeadline(time.Time{})
		return false
	}
}

// causeOf is the reason ctx ended where it did, because then err is only the echo.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
