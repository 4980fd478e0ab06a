// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// cdpTimeout bounds the way to a screen's browser: a screen that is asleep wakes for it, and
// a browser that does not run is started.
const cdpTimeout = 2 * time.Minute

func (c *cli) cdpCommand() *cobra.Command {
	var socket string
	port := 0
	cmd := &cobra.Command{
		Use:   "cdp [SCREEN | --socket PATH]",
		Short: "Let Playwright, Puppeteer or chromedp drive a screen's browser",
		Long: `Serve the DevTools protocol of a screen's browser on a port of this machine, for as long as this command runs. The
browser is the one that people see on the screen, with its logins; one that does not run is started, and a screen that
is asleep is woken. The addresses that are printed hold a secret, without which the port serves nothing: other users of
this machine can connect to it too.

  Playwright  chromium.connectOverCDP(ADDRESS)
  Puppeteer   puppeteer.connect({ browserWSEndpoint: WEBSOCKET })
  chromedp    the WEBSOCKET, as the address of a remote browser

While a person controls the screen connections are refused, and those that there are were cut when the person took it;
after the hand-back connect again: pages and logins are still there. The browser is shared, so it cannot be closed from
here: disconnect, or close your own pages.

With SCREEN the screen is reached through Nomad's alloc exec, with --socket through the agent's socket, which in a task
beside the screen is $NOMAD_ALLOC_DIR/botscreen/TASK.sock and is found there where neither is named.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if port < 0 || port > 65535 {
				return failf(exitUsage, "--port must be a port, 0 to 65535; it is %d.", port)
			}
			dial, err := c.browserDoor(args, socket)
			if err != nil {
				return err
			}
			return c.cdp(cmd.Context(), dial, port)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`PATH` of the agent's socket")
	cmd.Flags().IntVar(&port, "port", 0, "`PORT` of 127.0.0.1; 0 picks one")
	return cmd
}

// browserDoor is the way to the browser of the screen that the command line, or the task,
// names.
func (c *cli) browserDoor(args []string, socket string) (control.Dialer, error) {
	if len(args) > 0 && socket == "" {
		return func(ctx context.Context) (net.Conn, error) {
			client, s, err := c.running(ctx, args[0]) // anew each time: it may have moved
			if err != nil {
				return nil, err
			}
			return nomadjob.DialCDP(client, s)(ctx)
		}, nil
	}
	door, err := c.agentDoor("cdp", args, socket)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (net.Conn, error) {
		return control.NewClient(door).Stream(ctx, control.CallCDP, nil, nil)
	}, nil
}

func (c *cli) cdp(ctx context.Context, door control.Dialer, port int) error {
	dial := func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cdpTimeout)
		defer cancel()
		return patient(door)(ctx)
	}
	// What cannot be had at all is told of here, not to a program. A person who has the
	// screen gives it back some time.
	first, err := dial(ctx)
	switch {
	case control.KindOf(err) == control.HumanHasControl:
		c.complain(err)
	case err != nil:
		return c.browserError(err)
	default:
		_ = first.Close()
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return failf(exitFailed, "Cannot open the port for programs that drive the browser: %v.", err)
	}
	gate := newCDPGate(listener.Addr().String(), dial, c.complain)
	if err := c.printCDP(gate); err != nil {
		_ = listener.Close()
		return err
	}
	if err := gate.serve(ctx, listener); ctx.Err() == nil {
		return failf(exitFailed, "The port was closed: %v. Start the command again.", err)
	}
	return nil // that is how one leaves
}

// browserError is for people. Refusals and screens that are not found speak for themselves.
func (c *cli) browserError(err error) error {
	var refusal *control.Error
	var exit *exitError
	if errors.As(err, &refusal) || errors.As(err, &exit) {
		return err
	}
	return failf(exitFailed, "The screen's browser cannot be reached: %v. Through Nomad the token needs alloc-exec and alloc-node-exec.", err)
}

func (c *cli) printCDP(g *cdpGate) error {
	if c.json {
		return c.printJSON(map[string]any{"address": g.address(), "websocket": g.socket(), "port": g.port()})
	}
	_, err := fmt.Fprintf(c.out, "The browser is at %s\nWebSocket: %s\nWhoever knows an address drives the browser. Ctrl-C ends it.\n", g.address(), g.socket())
	return err
}
