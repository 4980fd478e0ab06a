// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// sessionPID is the session's pid in its container: it is the first process there.
const sessionPID = 1

// inside is the half that stands for the supervisor where the session runs.
type inside struct {
	m       *mux
	session int // the pid that is the session's

	mu      sync.Mutex // guards all below
	line    *line
	last    uint32                   // the link that was opened last
	xserver process.Identity         // as the session has shown it
	dials   map[uint64]dialhome.Peer // what was asked and is to be answered with a socket
}

// InsideMain runs the half inside until the pipe ends, which is its standard input and
// output, and returns the exit code of the process. It listens for the session at path, in
// a directory that is this process' own: the desktop's programs, which have another uid,
// cannot put a socket of theirs in its place.
func InsideMain(path string) int {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = serveInside(path)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintf(os.Stderr, "pipe: %v\n", err)
		return 1
	}
	return 0
}

func serveInside(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		return err
	}
	return newInside(os.Stdout, sessionPID).serve(os.Stdin, l)
}

func newInside(w io.Writer, session int) *inside {
	i := &inside{m: newMux(w, 0), session: session, dials: map[uint64]dialhome.Peer{}}
	i.m.handle = i.handle
	return i
}

// serve waits for the node's half, and then carries until the pipe ends.
func (i *inside) serve(r io.Reader, l *net.UnixListener) error {
	f, err := readFrame(r, make([]byte, maxPayload))
	if err != nil {
		return err
	}
	if f.kind != kindHello || f.payload[0] != version {
		return &brokenError{fmt.Sprintf("the node's half begins with kind %d, version %d is wanted", f.kind, version)}
	}
	go i.acceptAll(l)
	err = i.m.read(r)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.line != nil {
		_ = i.line.conn.Close()
	}
	return err
}

func (i *inside) handle(f frame) error {
	i.mu.Lock()
	l := i.line
	i.mu.Unlock()
	if l == nil || l.link != f.number {
		return i.m.refuse(f) // of a connection that has ended
	}
	switch f.kind {
	case kindClose:
		_ = l.conn.Close()
	case kindPacket:
		return l.accept(f)
	default:
		return &brokenError{"a frame that never comes from the node"}
	}
	return nil
}

// acceptAll takes the session whenever it dials, one connection at a time, and nobody else.
func (i *inside) acceptAll(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return // the pipe has ended
		}
		if !i.isSession(c) {
			_ = c.Close()
			continue
		}
		i.serveSession(dialhome.NewConn(c))
	}
}

func (i *inside) isSession(c *net.UnixConn) bool {
	cred, err := process.Peer(c)
	return err == nil && int(cred.Pid) == i.session
}

func (i *inside) serveSession(conn *dialhome.Conn) {
	i.mu.Lock()
	i.last++
	l := newLine(i.m, i.last, conn)
	l.judge, l.outgoing = i.asked, i.check
	i.line = l
	clear(i.dials)
	i.mu.Unlock()
	if i.m.send(frame{kindOpen, l.link, nil}) != nil {
		_ = conn.Close()
		return
	}
	_ = l.serve() // its end is told by the next frame
	i.mu.Lock()
	i.line = nil
	i.mu.Unlock()
	_ = i.m.send(frame{kindClose, l.link, nil}) // a pipe that is over says so elsewhere
}

// asked remembers which answers have to lead where.
func (i *inside) asked(p *dialhome.Packet) error {
	if p.Op != dialhome.OpDial {
		return nil
	}
	var dial dialhome.Dial
	if err := dialhome.Decode(p.Body, &dial); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dials[p.ID] = dial.Peer
	return nil
}

// check looks at what the session says. A connection that it passes has to lead to the X
// server that it has shown, or to the session itself: on the node nobody could tell (X11).
func (i *inside) check(p *dialhome.Packet, passed []*dialhome.Descriptor) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if d, ok := desktopOf(*p); ok {
		i.xserver = d.XServer()
	}
	peer, dialed := i.dials[p.ID]
	if p.ID == 0 || !dialed {
		return nil
	}
	delete(i.dials, p.ID)
	if !p.OK {
		return nil
	}
	for _, d := range passed {
		if !i.leadsTo(d.FD(), peer) {
			*p = dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: dialhome.KindFailed, Message: "the connection does not lead to this screen's X server or session"}}
			return nil
		}
	}
	return nil
}

// leadsTo needs i.mu.
func (i *inside) leadsTo(fd int, peer dialhome.Peer) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return false
	}
	if peer == dialhome.PeerCDP {
		return int(cred.Pid) == i.session
	}
	return int(cred.Pid) == i.xserver.PID && i.xserver.Alive()
}
