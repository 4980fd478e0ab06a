// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/control"
)

// Tunnel opens an exec stream into a task and gives it as a connection: what is
// written is the command's input, what is read its output. With the reserved commands
// of package control it reaches the screen's supervisor; control.OpenTunnel speaks
// the first lines. The stream ends with the connection, and with ctx.
func Tunnel(ctx context.Context, c *api.Client, s Screen, command string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	local, remote := net.Pipe()
	t := &tunnel{Conn: local, cancel: cancel, ended: make(chan struct{})}
	alloc := &api.Allocation{ID: s.Alloc, NodeID: s.NodeID, Namespace: s.Namespace}
	errs := &tail{}
	go func() {
		code, err := c.Allocations().Exec(ctx, alloc, s.Task, false, []string{command}, remote, remote, errs, nil,
			&api.QueryOptions{Namespace: s.Namespace})
		t.end(code, err, errs.String())
		_ = remote.Close()
	}()
	return t, nil
}

// Dial gives a dialer for package control: each connection is a tunnel of its own,
// with the operator's door behind it.
func Dial(c *api.Client, s Screen, hello control.Hello) control.Dialer {
	return dial(c, s, control.CommandControl, hello)
}

// DialAgent gives a dialer for package control with the agent's door behind it.
func DialAgent(c *api.Client, s Screen) control.Dialer {
	return dial(c, s, control.CommandAgent, control.Hello{})
}

// DialCDP gives a dialer for programs that drive the screen's browser: each connection is a
// tunnel of its own that carries HTTP, as the browser's debugging port would serve it. A
// refusal is a *control.Error.
func DialCDP(c *api.Client, s Screen) control.Dialer {
	return dial(c, s, control.CommandCDP, control.Hello{})
}

// DialRFB gives a dialer for one person's viewers: each connection is a tunnel of its
// own that carries RFB. A refusal is a *control.Error.
func DialRFB(c *api.Client, s Screen, hello control.Hello) control.Dialer {
	return dial(c, s, control.CommandRFB, hello)
}

func dial(c *api.Client, s Screen, command string, hello control.Hello) control.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		// The context of a dial ends with the dial; the connection lives on.
		conn, err := Tunnel(context.WithoutCancel(ctx), c, s, command)
		if err != nil {
			return nil, err
		}
		if err := control.OpenTunnel(ctx, conn, hello); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

// tunnel is the near end of an exec stream.
type tunnel struct {
	net.Conn
	cancel context.CancelFunc
	// ended is closed when the stream is over; err is set before.
	ended chan struct{}
	err   error
}

func (t *tunnel) end(code int, err error, errs string) {
	switch {
	case errors.Is(err, context.Canceled):
		// It was closed from here.
	case err != nil:
		t.err = fmt.Errorf("exec stream: %w", err)
	case code != 0:
		t.err = fmt.Errorf("exec stream: ended with status %d: %q", code, errs)
	}
	close(t.ended)
}

// Read gives the reason in place of a plain end where the stream failed.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	return n, t.why(err)
}

func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	return n, t.why(err)
}

func (t *tunnel) why(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	select {
	case <-t.ended:
		if t.err != nil {
			return t.err
		}
	default:
	}
	return err
}

func (t *tunnel) Close() error {
	err := t.Conn.Close()
	t.cancel()
	return err
}

// tailBytes is how much of an error output is kept.
const tailBytes = 512

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
