// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// maxLingering bounds the discarded descriptors that a sender makes linger: with
	// more the session is not taken again (X12).
	maxLingering = 64
	// shortestQuiet and longestQuiet bound how long a session that broke the protocol
	// is not taken again.
	shortestQuiet = time.Second
	longestQuiet  = time.Minute
	// refusalPause holds a flood of connections up at times when nobody is expected.
	refusalPause = 5 * time.Millisecond
)

// serve accepts on the dial-home socket until it is closed.
func (l *link) serve(listener *net.UnixListener) error {
	for {
		c, err := listener.AcceptUnix()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			time.Sleep(refusalPause) // a session that holds our descriptors does not end us
			continue
		}
		if err != nil {
			return fmt.Errorf("accept session: %w", err)
		}
		if reason := l.take(c); reason != "" {
			l.refuse(c, reason)
		}
	}
}

// take makes c the session's line, or says why not.
func (l *link) take(c *net.UnixConn) (refusal string) {
	cred, err := process.Peer(c)
	if err != nil {
		return "no credentials"
	}
	// The credentials are those of connect(); the start time tells a recycled pid apart.
	if int(cred.Pid) != l.session.PID || !l.session.Alive() {
		return fmt.Sprintf("pid %d uid %d is not the session", cred.Pid, cred.Uid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isOver():
		return "the session has ended"
	case l.line != nil:
		return "the session is connected already"
	case time.Now().Before(l.quiet):
		return "the session broke the protocol a moment ago"
	case dialhome.Closing() > maxLingering:
		return "too many descriptors that the session passed linger"
	}
	l.line = &line{
		conn: dialhome.NewConn(c), events: newBucket(eventsPerSecond, eventBurst), gone: make(chan struct{}),
		pending: map[uint64]*request{}, commands: map[uint64]chan<- dialhome.Exited{},
	}
	close(l.connected)
	go l.run(l.line)
	return ""
}

func (l *link) refuse(c *net.UnixConn, reason string) {
	l.mu.Lock()
	l.refused++
	first := l.refused == 1
	expected := l.line == nil && !l.isOver() && time.Now().After(l.quiet)
	l.mu.Unlock()
	_ = c.Close() // counted before: who is refused may look at once
	if first {    // a flood must not fill the log
		l.log.Warn("refused a dial-home connection; further ones are only counted", "reason", reason)
	}
	if !expected {
		time.Sleep(refusalPause)
	}
}

// run reads one connection to its end.
func (l *link) run(on *line) {
	err := l.read(on)
	_ = on.conn.Close()
	l.mu.Lock()
	if on.breach != nil {
		err = on.breach
	}
	l.line = nil
	l.connected = make(chan struct{})
	pending := on.pending
	on.pending = map[uint64]*request{}
	wait := l.punish(err)
	l.mu.Unlock()
	for _, r := range pending {
		r.answer <- answer{err: errNoSession} // has room for one
	}
	close(on.gone)
	switch {
	case wait > 0:
		l.log.Warn("ended the dial-home connection", "error", err, "not_taken_for", wait)
	case !dialhome.IsClosed(err):
		l.log.Warn("the dial-home connection ended", "error", err)
	}
}

// punish needs l.mu. It returns how long a session that broke the protocol is not taken
// again, which bounds what breaking it over and over costs.
func (l *link) punish(err error) time.Duration {
	var breach *dialhome.ProtocolError
	if !errors.As(err, &breach) {
		return 0
	}
	wait := min(shortestQuiet<<min(l.breaches, 10), longestQuiet)
	l.breaches++
	l.quiet = time.Now().Add(wait)
	return wait
}

// accuse ends a connection for what it passed.
func (l *link) accuse(on *line, reason error) {
	l.mu.Lock()
	on.breach = &dialhome.ProtocolError{Reason: reason.Error()}
	l.mu.Unlock()
	_ = on.conn.Close()
}

// finish ends the link when the session is gone: what it said last is still read, for
// at most limit, since a child of it may hold its connection (X13).
func (l *link) finish(limit time.Duration) {
	l.mu.Lock()
	if !l.isOver() {
		close(l.over)
	}
	on := l.line
	l.mu.Unlock()
	if on == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-on.gone:
	case <-timer.C:
		_ = on.conn.Close()
		<-on.gone
	}
}

func (l *link) read(on *line) error {
	for {
		packet, passed, err := on.conn.Receive()
		if err != nil {
			return err
		}
		switch {
		case packet.Op != "":
			err = &dialhome.ProtocolError{Reason: "a request from the session"}
		case packet.Event != "" && len(passed) > 0:
			err = &dialhome.ProtocolError{Reason: "an event with descriptors"}
		case packet.Event != "":
			err = l.report(on, packet)
		default:
			err = l.deliver(on, packet, passed)
			passed = nil
		}
		dialhome.CloseAll(passed)
		if err != nil {
			return err
		}
	}
}

// report hands an event on. The end of a command that runs is one that was asked for;
// all others are counted.
func (l *link) report(on *line, packet dialhome.Packet) error {
	if packet.Event == dialhome.EventExited {
		var e dialhome.Exited
		if err := dialhome.Decode(packet.Body, &e); err != nil {
			return err
		}
		if l.commandEnded(on, e) {
			return nil
		}
	}
	// Not the connection's end: that would take everybody's commands with it, for what a
	// program on the desktop can bring about, and what is said at the end of a flood counts.
	_ = on.events.wait(context.Background()) // for a moment: 1/eventsPerSecond
	l.onEvent(packet)
	return nil
}

func (l *link) commandEnded(on *line, e dialhome.Exited) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := on.commands[e.Command]
	if ok {
		delete(on.commands, e.Command)
		c <- e // has room for the one
	}
	return ok
}

// deliver hands an answer to whoever asked; what was passed becomes the asker's.
func (l *link) deliver(on *line, packet dialhome.Packet, passed []*dialhome.Descriptor) error {
	l.mu.Lock()
	r := on.pending[packet.ID]
	delete(on.pending, packet.ID)
	l.mu.Unlock()
	if r == nil {
		dialhome.CloseAll(passed)
		return errUnasked
	}
	want := r.want
	if !packet.OK {
		want = 0
	}
	if len(passed) != want {
		dialhome.CloseAll(passed)
		err := &dialhome.ProtocolError{Reason: fmt.Sprintf("%d descriptors in an answer that has %d", len(passed), want)}
		r.answer <- answer{err: err}
		return err
	}
	r.answer <- answer{packet: packet, passed: passed}
	return nil
}
