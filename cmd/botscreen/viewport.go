// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/rfb"
)

const (
	// maxGuesses is how many connections may not know the password before the port closes.
	maxGuesses = 5
	// passwordTimeout bounds the time until a program has shown the password.
	passwordTimeout = time.Minute
)

// viewPort serves one VNC program on a loopback port, until that leaves or ctx ends.
func (c *cli) viewPort(ctx context.Context, v view, number int) error {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number})
	if err != nil {
		return failf(exitFailed, "Cannot open the port for the VNC program: %v.", err)
	}
	port := onePort{listener: listener, password: rand.Text()[:rfb.PasswordLen], dial: v.dial, report: c.complain}
	if err := c.printPort(v, port); err != nil {
		_ = listener.Close()
		return err
	}
	err = port.serve(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // that is how one leaves
	case errors.Is(err, rfb.ErrPassword):
		return failf(exitFailed, "The port was closed: %d connections did not know the password. Start the command again for another one.", maxGuesses)
	case err != nil:
		return failf(exitFailed, "The view ended: %v.", err)
	}
	return nil
}

func (c *cli) printPort(v view, p onePort) error {
	address := p.listener.Addr().(*net.TCPAddr)
	if c.json {
		return c.printJSON(map[string]any{
			"screen": v.screen.Path(), "host": address.IP.String(), "port": address.Port, "password": p.password, "mode": v.mode,
		})
	}
	_, err := fmt.Fprintf(c.out, "Screen %s is at %s for one VNC program, for example:  vncviewer 127.0.0.1::%d\nPassword (good once): %s\n%s Ctrl-C ends the view.\n",
		line(v.screen.Path()), address, address.Port, p.password, v.inputSentence())
	return err
}

// onePort is a loopback port for one VNC program that knows a password (threats.md X27):
// other users of the machine can connect to it too.
type onePort struct {
	listener *net.TCPListener
	password string
	dial     control.Dialer
	report   func(error)
}

// serve lets the first in that knows the password, closes the port before that one is
// told so, and carries the connection to its end.
func (p onePort) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.listener.Close() })
	defer stop()
	near, far, err := p.admit(ctx)
	_ = p.listener.Close()
	if err != nil {
		return err
	}
	return carry(ctx, near, far)
}

func (p onePort) admit(ctx context.Context) (near, far net.Conn, err error) {
	for guesses := 0; guesses < maxGuesses; {
		near, err := p.listener.Accept()
		if err != nil {
			return nil, nil, err
		}
		far, spent, err := p.try(ctx, near)
		if err == nil {
			return near, far, nil
		}
		_ = near.Close()
		if spent {
			return nil, nil, err
		}
		if errors.Is(err, rfb.ErrPassword) {
			guesses++
		}
		if ctx.Err() == nil {
			p.report(fmt.Errorf("a connection was refused: %w", err))
		}
	}
	return nil, nil, rfb.ErrPassword
}

// try asks a connection for the password. Connections are tried one after another, so
// one that says nothing holds up the next for passwordTimeout. The password is spent with
// the first that knows it, and the port is closed.
func (p onePort) try(ctx context.Context, near net.Conn) (far net.Conn, spent bool, err error) {
	defer context.AfterFunc(ctx, func() { _ = near.Close() })()
	far, err = p.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	init, err := join(ctx, far)
	if err == nil {
		_ = near.SetDeadline(time.Now().Add(passwordTimeout))
		_, err = rfb.WelcomeWithPassword(near, init, p.password, func() {
			spent = true
			_ = p.listener.Close()
		})
	}
	if err != nil {
		return nil, spent, errors.Join(err, far.Close())
	}
	_ = near.SetDeadline(time.Time{})
	return far, true, nil
}

// join shakes hands with the screen.
func join(ctx context.Context, far net.Conn) (rfb.ServerInit, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = far.SetDeadline(time.Unix(1, 0)) })()
	_, init, err := rfb.Join(far, rfb.MaxSize)
	return init, err
}
