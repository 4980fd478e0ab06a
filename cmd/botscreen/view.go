// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

type viewFlags struct {
	vnc, watch, noOpen bool
	port               int // -1: not asked for
}

func (c *cli) viewCommand() *cobra.Command {
	var f viewFlags
	cmd := &cobra.Command{
		Use:   "view SCREEN",
		Short: "See a screen in a browser or a VNC program, take it over and hand it back",
		Long: `See a screen in your browser. The page shows who controls the screen; you watch until you press "Take over", and
hand back there too. It is served on a port of this machine that only the browser opened here can use, for as
long as this command runs; the screen's node opens no port, everything goes through Nomad. Closing the page hands
back what you control; a connection that breaks, or this command's end, does not.

With -vnc a VNC program of your own takes the browser's place: a Unix socket that you alone can connect to; each
connection shows the screen. With -port the program connects to a port of this machine instead (0: any), once,
with a password that is printed. What you type and click there reaches the screen only while you control it: after
` + "`botscreen take SCREEN`" + ` by the same user, until ` + "`botscreen release SCREEN`" + `. Another connection of yours takes
the place of the one before. Closing the program hands nothing back.

With -watch input never passes. Programs on the desktop can read what is typed there.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.view(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVar(&f.vnc, "vnc", false, "open a Unix socket for a VNC program")
	cmd.Flags().IntVar(&f.port, "port", -1, "open this `PORT` of 127.0.0.1 for one VNC program; 0 picks one")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "send no input, also while you have control")
	cmd.Flags().BoolVar(&f.noOpen, "no-open", false, "do not open the browser, print how to")
	cmd.MarkFlagsMutuallyExclusive("vnc", "port")
	return cmd
}

// view is one person's way to one screen.
type view struct {
	screen nomadjob.Screen
	mode   control.ViewMode
	dial   control.Dialer // one more stream, with errors for people
}

func (c *cli) view(ctx context.Context, name string, f viewFlags) error {
	if f.port < -1 || f.port > 65535 {
		return failf(exitUsage, "-port must be a port, 0 to 65535; it is %d.", f.port)
	}
	viewer, err := viewerID()
	if err != nil {
		return err
	}
	client, s, err := c.running(ctx, name)
	if err != nil {
		return err
	}
	hello := control.Hello{Viewer: viewer, Mode: control.Control, Web: !f.vnc && f.port < 0}
	if f.watch {
		hello.Mode = control.Watch
	}
	dial := nomadjob.DialRFB(client, s, hello)
	v := view{s, hello.Mode, func(ctx context.Context) (net.Conn, error) { return c.openView(ctx, s, dial) }}
	// A screen that cannot be viewed is told of here, not to a program.
	first, err := v.dial(ctx)
	if err != nil {
		return err
	}
	_ = first.Close()
	switch {
	case f.vnc:
		return c.viewSocket(ctx, v)
	case f.port >= 0:
		return c.viewPort(ctx, v, f.port)
	default:
		return c.viewPage(ctx, v, !f.noOpen)
	}
}

// viewTimeout bounds the way to a screen that a person wants to see: one that is asleep
// wakes for it.
const viewTimeout = 90 * time.Second

func (c *cli) openView(ctx context.Context, s nomadjob.Screen, dial control.Dialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, c.screenError(s, err)
	}
	return conn, nil
}

func (v view) inputSentence() string {
	if v.mode == control.Watch {
		return "Input does not pass."
	}
	return "Input passes while you control the screen: `botscreen take`, `botscreen release`."
}

// complain tells of a fault that does not end the command.
func (c *cli) complain(err error) {
	_, _ = fmt.Fprintln(c.errs, "Error:", clean(err.Error()))
}
