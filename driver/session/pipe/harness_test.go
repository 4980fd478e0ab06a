// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// limit bounds every wait; none takes nearly as long.
const limit = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is both halves, joined as an engine joins them, between a supervisor and a session
// that the test plays.
type rig struct {
	t          *testing.T
	supervisor *net.UnixListener // what the node's half dials
	inside     string            // what the session dials
	node       *node
	cut        func()     // ends the pipe
	nodeOver   chan error // how the node's half ended
	insideOver chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsp-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{t: t, inside: filepath.Join(dir, "i"), nodeOver: make(chan error, 1), insideOver: make(chan error, 1)}
	r.supervisor = listen(t, filepath.Join(dir, "s"))
	within := listen(t, r.inside)
	engine, command := socket(t)
	output, outputWriter := io.Pipe()
	self, err := process.Observe(os.Getpid())
	must(t, err)
	r.node = newNode(engine, filepath.Join(dir, "s"), self, t.Output())
	half := newInside(outputWriter, os.Getpid())
	go func() { r.insideOver <- half.serve(command, within); _ = outputWriter.Close(); _ = within.Close() }()
	go func() { // the engine
		buffer := make([]byte, 8+64<<10)
		for {
			n, err := output.Read(buffer[8:])
			buffer[0] = streamOutput
			binary.BigEndian.PutUint32(buffer[4:], uint32(n))
			if _, sent := command.Write(buffer[:8+n]); sent != nil || err != nil {
				_ = command.Close()
				return
			}
		}
	}()
	go func() { r.nodeOver <- r.node.serve(&demultiplexer{r: engine, aside: t.Output()}) }()
	r.cut = func() { _, _ = engine.Close(), command.Close() }
	t.Cleanup(r.cut)
	return r
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	must(t, l.SetDeadline(time.Now().Add(limit)))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func socket(t *testing.T) (a, b *os.File) {
	t.Helper()
	far, near, err := socketPair()
	must(t, err)
	t.Cleanup(func() { _, _ = far.Close(), near.Close() })
	return far, near
}

// connect is the session's connection and the supervisor's end of what comes of it.
func (r *rig) connect() (session, supervisor *dialhome.Conn) {
	r.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.inside, Net: "unixpacket"})
	must(r.t, err)
	must(r.t, c.SetReadDeadline(time.Now().Add(limit)))
	s, err := r.supervisor.AcceptUnix()
	must(r.t, err)
	must(r.t, s.SetReadDeadline(time.Now().Add(limit)))
	session, supervisor = dialhome.NewConn(c), dialhome.NewConn(s)
	r.t.Cleanup(func() { _, _ = session.Close(), supervisor.Close() })
	return session, supervisor
}

// pass sends a packet and receives it at the other end.
func (r *rig) pass(from, to *dialhome.Conn, p dialhome.Packet, files ...*os.File) (dialhome.Packet, []*dialhome.Descriptor) {
	r.t.Helper()
	must(r.t, from.Send(p, files...))
	closeFiles(files)
	got, passed, err := to.Receive()
	must(r.t, err)
	r.t.Cleanup(func() { dialhome.CloseAll(passed) })
	return got, passed
}

// taken is a passed descriptor as a file with deadlines.
func taken(t *testing.T, d *dialhome.Descriptor) *os.File {
	t.Helper()
	must(t, unix.SetNonblock(d.FD(), true))
	f := d.File("passed")
	t.Cleanup(func() { _ = f.Close() })
	_ = f.SetDeadline(time.Now().Add(limit)) // a file in memory has none
	return f
}

func newPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	must(t, r.SetDeadline(time.Now().Add(limit)))
	must(t, w.SetDeadline(time.Now().Add(limit)))
	return r, w
}

func await(t *testing.T, over <-chan error) error {
	t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(limit):
		t.Fatal("it does not end")
		return nil
	}
}
