// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/botscreen/botscreen/shared/control"
)

// viewSocket opens a Unix socket for a VNC program and serves it until ctx ends.
func (c *cli) viewSocket(ctx context.Context, v view) error {
	door, err := openDoor()
	if err != nil {
		return failf(exitFailed, "Cannot open a socket for the VNC program: %v.", err)
	}
	defer door.close()
	if err := c.printDoor(v, door.path); err != nil {
		return err
	}
	err = door.serve(ctx, v.dial, func(err error) { c.complain(err) })
	if ctx.Err() != nil {
		return nil // that is how one leaves
	}
	return failf(exitFailed, "The socket for the VNC program takes no connections any more: %v. Start the command again.", err)
}

func (c *cli) printDoor(v view, path string) error {
	if c.json {
		return c.printJSON(map[string]any{"screen": v.screen.Path(), "socket": path, "mode": v.mode})
	}
	_, err := fmt.Fprintf(c.out, "Screen %s is at the Unix socket %s\nSee it with, for example:  vncviewer %s\n%s Ctrl-C ends the view.\n",
		line(v.screen.Path()), path, path, v.inputSentence())
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
// far side's: a near one that leaves, also abruptly, is no fault.
func carry(ctx context.Context, near, far net.Conn) error {
	side := &nearSide{Conn: near}
	closeBoth := sync.OnceFunc(func() { _ = near.Close(); _ = far.Close() })
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(far, side)
		closeBoth()
	})
	_, err := io.Copy(side, far)
	left := side.left.Load() // before it is closed from here
	closeBoth()
	both.Wait()
	if left {
		return nil
	}
	return err
}

// nearSide notes that it has ended.
type nearSide struct {
	net.Conn
	left atomic.Bool
}

func (n *nearSide) Read(b []byte) (int, error) {
	got, err := n.Conn.Read(b)
	if err != nil {
		n.left.Store(true)
	}
	return got, err
}

func (n *nearSide) Write(b []byte) (int, error) {
	written, err := n.Conn.Write(b)
	if err != nil {
		n.left.Store(true)
	}
	return written, err
}
