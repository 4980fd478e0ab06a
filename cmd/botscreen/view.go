// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

type viewFlags struct{ vnc, watch bool }

func (c *cli) viewCommand() *cobra.Command {
	var f viewFlags
	cmd := &cobra.Command{
		Use:   "view --vnc SCREEN",
		Short: "See a screen in a VNC program, and use it after `botscreen take`",
		Long: `See a screen in a VNC program of your own. -vnc opens a Unix socket that you alone can connect to and prints its
path; each connection shows the screen until you end this command with Ctrl-C.

What you type and click reaches the screen only while you control it: after ` + "`botscreen take SCREEN`" + ` by the same
user, until ` + "`botscreen release SCREEN`" + `. Another connection of yours takes the place of the one before. Closing the
program hands nothing back. With -watch input never passes.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.view(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVar(&f.vnc, "vnc", false, "open a Unix socket for a VNC program (required: there is no other viewer yet)")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "send no input, also while you have control")
	return cmd
}

func (c *cli) view(ctx context.Context, name string, f viewFlags) error {
	if !f.vnc {
		return failf(exitUsage, "Say how to view it: `botscreen view --vnc SCREEN`. There is no other viewer yet.")
	}
	viewer, err := viewerID()
	if err != nil {
		return err
	}
	client, s, err := c.running(ctx, name)
	if err != nil {
		return err
	}
	hello := control.Hello{Viewer: viewer, Mode: control.Control}
	if f.watch {
		hello.Mode = control.Watch
	}
	dial := nomadjob.DialRFB(client, s, hello)
	// A screen that cannot be viewed is told of here, not to a VNC program.
	first, err := c.openView(ctx, s, dial)
	if err != nil {
		return err
	}
	_ = first.Close()
	door, err := openDoor()
	if err != nil {
		return failf(exitFailed, "Cannot open a socket for the VNC program: %v.", err)
	}
	defer door.close()
	if err := c.printDoor(s, door.path, hello.Mode); err != nil {
		return err
	}
	err = door.serve(ctx, func(ctx context.Context) (net.Conn, error) { return c.openView(ctx, s, dial) }, func(err error) {
		_, _ = fmt.Fprintln(c.errs, "Error:", clean(err.Error()))
	})
	if ctx.Err() != nil {
		return nil // that is how one leaves
	}
	return failf(exitFailed, "The socket for the VNC program takes no connections any more: %v. Start the command again.", err)
}

func (c *cli) openView(ctx context.Context, s nomadjob.Screen, dial control.Dialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, c.screenError(s, err)
	}
	return conn, nil
}

func (c *cli) printDoor(s nomadjob.Screen, path string, mode control.ViewMode) error {
	if c.json {
		return c.printJSON(map[string]any{"screen": s.Path(), "socket": path, "mode": mode})
	}
	text := "Input passes while you control the screen: `botscreen take`, `botscreen release`."
	if mode == control.Watch {
		text = "Input does not pass."
	}
	_, err := fmt.Fprintf(c.out, "Screen %s is at the Unix socket %s\nSee it with, for example:  vncviewer %s\n%s Ctrl-C ends the view.\n",
		line(s.Path()), path, path, text)
	return err
}

// door is a socket that its user's programs alone can connect to (threats.md X27).
type door struct {
	listener *net.UnixListener
	dir      string
	path     string
}

// maxSocketPath is the longest path of a Unix socket in bytes, see unix(7).
const maxSocketPath = 107

func openDoor() (*door, error) {
	dir, err := doorDir()
	if err != nil {
		return nil, err
	}
	d := &door{dir: dir, path: filepath.Join(dir, "vnc.sock")}
	if len(d.path) > maxSocketPath {
		err = fmt.Errorf("its path %s is longer than %d bytes; set XDG_RUNTIME_DIR or TMPDIR to a shorter directory", d.path, maxSocketPath)
	} else {
		d.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"})
	}
	if err == nil {
		err = os.Chmod(d.path, 0o600) // the directory is ours alone before that
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// doorDir makes a directory of mode 0700, in the user's runtime directory if there is
// one.
func doorDir() (string, error) {
	const pattern = "botscreen-view-"
	if base := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		if dir, err := os.MkdirTemp(base, pattern); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", pattern)
}

func (d *door) close() {
	if d.listener != nil {
		_ = d.listener.Close()
	}
	_ = os.RemoveAll(d.dir)
}

// serve carries each connection to one that dial opens, until ctx ends or the socket
// fails. When it returns all have ended.
func (d *door) serve(ctx context.Context, dial control.Dialer, report func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = d.listener.Close() })()
	for {
		near, err := d.listener.AcceptUnix()
		if err != nil {
			return err
		}
		all.Go(func() {
			defer near.Close()
			far, err := dial(ctx)
			if err != nil {
				if ctx.Err() == nil {
					report(err)
				}
				return
			}
			if err := carry(ctx, near, far); err != nil && ctx.Err() == nil {
				report(err)
			}
		})
	}
}

// carry copies both ways until one side or ctx ends, and closes both. The error is the
// far side's.
func carry(ctx context.Context, near, far net.Conn) error {
	var left atomic.Bool // the near side
	closeBoth := sync.OnceFunc(func() { _ = near.Close(); _ = far.Close() })
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(far, near); err == nil {
			left.Store(true)
		}
		closeBoth()
	})
	_, err := io.Copy(near, far)
	closeBoth()
	both.Wait()
	var op *net.OpError
	if left.Load() || errors.As(err, &op) && op.Net == "unix" {
		return nil
	}
	return err
}
