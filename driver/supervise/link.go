// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// maxOutstanding bounds the requests in flight, and with them the descriptors a
	// session may pass (X12).
	maxOutstanding = 64
	// requestsPerSecond and requestBurst bound what is asked of a session (X12).
	requestsPerSecond, requestBurst = 20, 40
	// eventsPerSecond and eventBurst bound what is heard of a session's reports; one that
	// has more to say waits. A real one has eight for each wake and five copies a second.
	eventsPerSecond, eventBurst = 50, 100
)

var (
	errNoSession = errors.New("the session is not connected")
	errBusy      = errors.New("too many requests to the session at once")
	errUnasked   = &dialhome.ProtocolError{Reason: "an answer nobody asked for"}
)

// link is the supervisor's end of the dial-home connection. It accepts only the
// process that the isolation launched, by the kernel's word (X13), and treats every
// packet as hostile (X10 to X12).
type link struct {
	session  process.Identity
	log      hclog.Logger
	onEvent  func(dialhome.Packet)
	requests *bucket

	mu        sync.Mutex // guards all below
	line      *line      // nil while the session is not connected
	connected chan struct{}
	over      chan struct{} // closed when no session is expected any more
	next      uint64
	refused   int       // connections that were not taken
	breaches  int       // connections that broke the protocol
	quiet     time.Time // nobody is taken before
}

// line is one live connection and what was asked over it.
type line struct {
	conn   *dialhome.Conn
	events *bucket
	gone   chan struct{} // closed when the connection has ended

	// Guarded by link.mu.
	pending  map[uint64]*request
	commands map[uint64]chan<- dialhome.Exited
	breach   error // what it was ended for, where that was not seen by its reader
}

// question is a request before it is asked.
type question struct {
	op    dialhome.Op
	body  any
	files []*os.File // ride in the request and stay the caller's
	want  int        // how many descriptors the answer carries
	// exited hears the end of the command that the request starts. It has room for
	// one and is set for OpExec alone.
	exited chan dialhome.Exited
	urgent bool // goes past the bounds on ordinary requests
}

// request is a question that waits for its answer.
type request struct {
	want   int
	answer chan answer // has room for one
}

// answer is what came; what was passed is the asker's.
type answer struct {
	id     uint64
	line   *line
	packet dialhome.Packet
	passed []*dialhome.Descriptor
	err    error
}

func newLink(session process.Identity, log hclog.Logger, onEvent func(dialhome.Packet)) *link {
	return &link{
		session: session, log: log, onEvent: onEvent,
		requests: newBucket(requestsPerSecond, requestBurst), connected: make(chan struct{}), over: make(chan struct{}),
		// Another supervisor's numbers are never taken for ours.
		next: uint64(rand.Uint32()) << 16,
	}
}

// call asks the session and waits for its answer, with exactly q.want descriptors. The
// caller owns them. A refusal by the session is a *dialhome.Error.
func (l *link) call(ctx context.Context, q question) (answer, error) {
	a, err := l.ask(ctx, q)
	var refusal *dialhome.Error
	if err != nil && !errors.As(err, &refusal) {
		err = fmt.Errorf("ask session to %s: %w", q.op, err)
	}
	return a, err
}

func (l *link) ask(ctx context.Context, q question) (answer, error) {
	if !q.urgent {
		if err := l.requests.wait(ctx); err != nil {
			return answer{}, err
		}
	}
	r := &request{want: q.want, answer: make(chan answer, 1)}
	id, line, err := l.register(ctx, q, r)
	if err != nil {
		return answer{}, err
	}
	packet := dialhome.Packet{ID: id, Op: q.op, Body: dialhome.Encode(q.body)}
	if err := line.conn.Send(packet, q.files...); err != nil {
		l.forget(line, id)
		if dialhome.IsClosed(err) {
			err = errNoSession
		}
		return answer{}, err
	}
	select {
	case a := <-r.answer:
		a.id, a.line = id, line
		return l.settle(a)
	case <-ctx.Done():
		go l.abandon(id, line, r, q)
		return answer{}, context.Cause(ctx)
	}
}

// settle turns what came into what the asker gets.
func (l *link) settle(a answer) (answer, error) {
	if a.err == nil && a.packet.Err != nil {
		a.err = a.packet.Err
	}
	if a.err != nil {
		l.forget(a.line, a.id)
		return answer{}, a.err
	}
	return a, nil
}

// register waits for the session to be connected and reserves an id.
func (l *link) register(ctx context.Context, q question, r *request) (uint64, *line, error) {
	for {
		l.mu.Lock()
		if l.line != nil && !l.isOver() {
			defer l.mu.Unlock()
			return l.enter(q, r)
		}
		connected := l.connected
		l.mu.Unlock()
		select {
		case <-connected:
		case <-l.over:
			return 0, nil, errNoSession
		case <-ctx.Done():
			return 0, nil, errNoSession
		}
	}
}

// enter needs l.mu and a line.
func (l *link) enter(q question, r *request) (uint64, *line, error) {
	if len(l.line.pending) >= maxOutstanding && !q.urgent {
		return 0, nil, errBusy
	}
	l.next++
	l.line.pending[l.next] = r
	if q.exited != nil {
		l.line.commands[l.next] = q.exited
	}
	return l.next, l.line, nil
}

// done is closed when no session is expected any more.
func (l *link) done() <-chan struct{} { return l.over }

func (l *link) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// forget drops what was registered for an id.
func (l *link) forget(line *line, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(line.pending, id)
	delete(line.commands, id)
}

// abandon leaves the id registered, so that a late answer is not taken for an unasked
// one, closes what comes with it and ends the command it started.
func (l *link) abandon(id uint64, line *line, r *request, q question) {
	a := <-r.answer // the end of the line answers everything that is pending
	dialhome.CloseAll(a.passed)
	l.forget(line, id)
	if q.exited != nil && a.err == nil && a.packet.OK {
		l.kill(line, id)
	}
}

// kill ends a command whose caller is gone; nobody waits for the answer.
func (l *link) kill(on *line, command uint64) {
	r := &request{answer: make(chan answer, 1)}
	l.mu.Lock()
	if on != l.line {
		l.mu.Unlock()
		return // its commands ended with it
	}
	l.next++
	id := l.next
	on.pending[id] = r
	l.mu.Unlock()
	body := dialhome.Encode(dialhome.Signal{Command: command, Signal: sigKill})
	if err := on.conn.Send(dialhome.Packet{ID: id, Op: dialhome.OpSignal, Body: body}); err != nil {
		l.forget(on, id)
	}
}
