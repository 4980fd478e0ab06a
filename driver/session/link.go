// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// queuedPackets is how far a supervisor may lag behind before it counts as stuck.
const queuedPackets = 128

// link is one connection to a supervisor. Packets are queued in the order of their
// posts and written by one goroutine, so that a supervisor that stopped reading holds
// up nothing of the desktop.
type link struct {
	conn     *dialhome.Conn
	commands *commands     // what this supervisor asked to run
	done     chan struct{} // closed when nothing is written any more

	mu     sync.Mutex // guards all below
	queue  chan outgoing
	closed bool
}

type outgoing struct {
	packet dialhome.Packet
	files  []*os.File
}

func newLink(conn *dialhome.Conn, c *commands) *link {
	return &link{conn: conn, commands: c, done: make(chan struct{}), queue: make(chan outgoing, queuedPackets)}
}

// dial connects to the supervisor's socket at path.
func dial(path string) (*dialhome.Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("dial supervisor: %w", err)
	}
	return dialhome.NewConn(c), nil
}

// isAbsent reports whether err only says that no supervisor is there now.
func isAbsent(err error) bool {
	return dialhome.IsClosed(err) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN)
}

// post queues a packet; files are the link's from now on. A supervisor that lags too
// far behind is given up: its successor is told by hello.
func (l *link) post(p dialhome.Packet, files ...*os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		select {
		case l.queue <- outgoing{p, files}:
			return
		default:
			_ = l.conn.Close()
		}
	}
	closeFiles(files)
}

// reply answers the request id.
func (l *link) reply(id uint64, body any, failure *dialhome.Error, files ...*os.File) {
	packet := dialhome.Packet{ID: id, OK: failure == nil, Err: failure}
	if failure == nil && body != nil {
		packet.Body = dialhome.Encode(body)
	}
	l.post(packet, files...)
}

// run writes what is posted until the connection ends. When ctx ends it writes what is
// queued, the reason of the end for example, and closes the connection.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	defer l.shut()
	for {
		select {
		case o := <-l.queue:
			if l.send(o) != nil {
				return
			}
		case <-ctx.Done():
			l.flush()
			return
		}
	}
}

func (l *link) flush() {
	for {
		select {
		case o := <-l.queue:
			if l.send(o) != nil {
				return
			}
		default:
			return
		}
	}
}

// send closes our copies: whoever holds one could write beside the supervisor (X10).
func (l *link) send(o outgoing) error {
	defer closeFiles(o.files)
	return l.conn.Send(o.packet, o.files...)
}

// shut ends the connection and drops what is queued still.
func (l *link) shut() {
	_ = l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for {
		select {
		case o := <-l.queue:
			closeFiles(o.files)
		default:
			return
		}
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
