// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/screen"
)

// node is the half that stands for the session on the node: to the supervisor it is the
// session, and the X server too, because it is who holds the other end of the connections
// that are passed.
type node struct {
	m    *mux
	dial string
	self process.Identity
	log  io.Writer

	mu   sync.Mutex // guards all below
	line *line
}

// NodeMain runs the half on the node until the pipe ends, and with it the session as this
// node sees it, and returns the exit code of the process. Its standard input is the
// connection to an engine whose other end is InsideMain, as the engine frames the output of
// a command (Engine API, "Attach to a container", stream format). dialPath is the
// supervisor's socket.
func NodeMain(dialPath string) int {
	log := newUnheard(int(os.Stderr.Fd()))
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var self process.Identity
	if err == nil {
		self, err = process.Observe(os.Getpid())
	}
	if err == nil {
		n := newNode(os.Stdin, dialPath, self, log)
		err = n.serve(&demultiplexer{r: os.Stdin, aside: log})
	}
	if err != nil {
		fmt.Fprintf(log, "pipe: %v\n", err)
		return 1
	}
	return 0
}

// unheard writes to a log that nobody may read: what does not fit is dropped, and nobody
// of the screen waits for it (S8a).
type unheard int

func newUnheard(fd int) unheard {
	_ = unix.SetNonblock(fd, true)
	return unheard(fd)
}

func (u unheard) Write(b []byte) (int, error) {
	_, _ = unix.Write(int(u), b)
	return len(b), nil
}

func newNode(w io.Writer, dialPath string, self process.Identity, log io.Writer) *node {
	n := &node{m: newMux(w, 1), dial: dialPath, self: self, log: log}
	n.m.handle = n.handle
	return n
}

// serve greets the other half and carries until the pipe ends. Its end between two frames
// is the session's and no error.
func (n *node) serve(r io.Reader) error {
	if err := n.m.send(frame{kindHello, 0, []byte{version}}); err != nil {
		return err
	}
	r, err := refusalOrFrames(r)
	if err == nil {
		err = n.m.read(r)
	}
	n.close()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// refusalOrFrames gives r back where it begins as frames do. An engine that cannot start
// the other half writes why where that would have written: nothing of a screen comes before
// the first frame, so it can be repeated.
func refusalOrFrames(r io.Reader) (io.Reader, error) {
	const most = 300
	var first [headerSize]byte
	if _, err := io.ReadFull(r, first[:]); err != nil {
		return nil, err
	}
	if bytes.ContainsFunc(first[:], func(c rune) bool { return c < ' ' || c > '~' }) {
		return io.MultiReader(bytes.NewReader(first[:]), r), nil
	}
	rest, err := io.ReadAll(io.LimitReader(r, most))
	text := screen.Distrust(string(append(first[:], rest...)))
	return nil, errors.Join(&brokenError{fmt.Sprintf("the engine says %q", text)}, err)
}

func (n *node) handle(f frame) error {
	switch f.kind {
	case kindOpen:
		return n.open(f.number)
	case kindClose:
		if l := n.current(f.number); l != nil {
			_ = l.conn.Close()
		}
	case kindPacket:
		if l := n.current(f.number); l != nil {
			return l.accept(f)
		}
		return n.m.refuse(f)
	default:
		return &brokenError{"a frame that never comes from inside"}
	}
	return nil
}

func (n *node) current(link uint32) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.line == nil || n.line.link != link {
		return nil // of a connection that has ended
	}
	return n.line
}

// open connects to the supervisor as the session has done to the other half. Where there is
// none the session is told so, and dials again when it sees fit.
func (n *node) open(link uint32) error {
	n.close()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.dial, Net: "unixpacket"})
	if err != nil {
		return n.m.send(frame{kindClose, link, nil})
	}
	l := newLine(n.m, link, dialhome.NewConn(c))
	l.tells, l.judge = true, n.show
	l.takes = func(s shape) bool { return s == shapeSocket || s == shapeTerminal }
	n.mu.Lock()
	n.line = l
	n.mu.Unlock()
	go func() {
		err := l.serve()
		if !dialhome.IsClosed(err) {
			fmt.Fprintf(n.log, "pipe: %v\n", err)
		}
		_ = n.m.send(frame{kindClose, link, nil}) // a pipe that is over says so elsewhere
	}()
	return nil
}

func (n *node) close() {
	n.mu.Lock()
	l := n.line
	n.line = nil
	n.mu.Unlock()
	if l != nil {
		_ = l.conn.Close()
		<-l.gone
	}
}

// show puts this process in the place of the X server, whose pid means nothing here. What
// the pid was is the other half's to know, which compares it with the kernel's word.
func (n *node) show(p *dialhome.Packet) error {
	desktop, ok := desktopOf(*p)
	if !ok || desktop.XPID == 0 {
		return nil
	}
	desktop.XPID, desktop.XStart = n.self.PID, n.self.Start
	p.Body = dialhome.Encode(desktop)
	return nil
}

// desktopOf is the desktop that a packet of the session tells of: hello does, and the
// answer to a start.
func desktopOf(p dialhome.Packet) (dialhome.Desktop, bool) {
	var d dialhome.Desktop
	if p.Event != dialhome.EventHello && (!p.OK || p.Event != "") || len(p.Body) == 0 {
		return d, false
	}
	if err := dialhome.Decode(p.Body, &d); err != nil || d.State == "" {
		return d, false
	}
	return d, true
}

// demultiplexer reads what a command says from an engine's frames: one byte for the
// stream, three of nothing, the length in four, big-endian. Of the two streams the second
// goes aside.
type demultiplexer struct {
	r     io.Reader
	aside io.Writer
	left  uint32
}

const (
	streamOutput = 1
	streamErrors = 2
	// maxAside bounds one message that goes aside, in bytes.
	maxAside = 64 << 10
)

func (d *demultiplexer) Read(b []byte) (int, error) {
	for d.left == 0 {
		var header [8]byte
		if _, err := io.ReadFull(d.r, header[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(header[4:])
		switch header[0] {
		case streamOutput:
			d.left = size
		case streamErrors:
			if size > maxAside {
				return 0, &brokenError{fmt.Sprintf("a message of %d bytes", size)}
			}
			if _, err := io.CopyN(d.aside, d.r, int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, &brokenError{fmt.Sprintf("the engine has a stream of kind %d", header[0])}
		}
	}
	n, err := d.r.Read(b[:min(uint64(len(b)), uint64(d.left))])
	d.left -= uint32(n)
	return n, err
}
