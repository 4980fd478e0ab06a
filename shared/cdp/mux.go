// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

const (
	// maxClients bounds the WebSockets open at once.
	maxClients = 16
	// maxPending bounds the calls of one client that wait for their answer.
	maxPending = 8192
)

// ErrClosed is what calls get once the browser's pipe has ended.
var ErrClosed = errors.New("the browser's pipe has ended")

// Error is the browser's answer to a call that it could not do.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Mux shares a browser's pipe. It is safe for concurrent use.
type Mux struct {
	pipe io.ReadWriteCloser
	id   string // of the browser, in its WebSocket's path
	done chan struct{}

	writing sync.Mutex // held across a write, so that messages never mix

	mu       sync.Mutex // guards all below; never held across I/O
	last     int32
	pending  map[int32]*call
	sessions map[string]session
	clients  int
	err      error // why it is done
}

// call is a command that waits for its answer.
type call struct {
	session string
	client  *client // nil: the mux's own
	id      []byte  // the client's
	// answer takes an own call's answer, in the reader: nothing that the browser sends
	// afterwards is looked at before it returns. It must not block.
	answer func(e envelope, err error)
}

// session is one that the browser has, flat or a client's first.
type session struct {
	client *client
	parent string // "" for a client's first
}

// New takes over the pipe of a browser that was started with --remote-debugging-pipe: what
// is written goes to the browser's descriptor 3, what is read comes from its descriptor 4
// (content/browser/devtools/devtools_pipe_handler.cc in Chromium's sources). It starts
// reading at once, until the pipe ends or Close. Messages that come late are bounded by the
// clients' own queues, so pipe must be read by nobody else.
func New(pipe io.ReadWriteCloser) *Mux {
	m := &Mux{
		pipe: pipe, id: newBrowserID(), done: make(chan struct{}),
		pending: map[int32]*call{}, sessions: map[string]session{},
	}
	go m.read()
	return m
}

// Close closes the pipe, which ends a browser that still runs, and with it all clients. It
// returns when nothing reads the pipe any more.
func (m *Mux) Close() error {
	err := m.pipe.Close()
	<-m.done
	return err
}

// Done is closed when the pipe has ended: the browser exited, or Close was called.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Err says why the pipe ended, once Done is closed.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// read takes what the browser sends to whom it is for, in its order.
func (m *Mux) read() {
	frames := newFrames(m.pipe)
	for {
		msg, err := frames.next()
		switch {
		case errors.Is(err, errTooLarge):
			m.tooLarge(msg)
		case err != nil:
			m.end(err)
			return
		default:
			m.route(msg)
		}
	}
}

// end wakes everybody who waits.
func (m *Mux) end(err error) {
	if errors.Is(err, io.EOF) {
		err = ErrClosed
	}
	m.mu.Lock()
	m.err = err
	pending := m.pending
	m.pending = map[int32]*call{}
	m.mu.Unlock()
	_ = m.pipe.Close()
	close(m.done) // clients watch it
	for _, c := range pending {
		if c.client == nil {
			c.answer(envelope{}, ErrClosed)
		}
	}
}

// route sends one message of the browser on. What cannot be read, or is for nobody who is
// still there, goes nowhere.
func (m *Mux) route(msg []byte) {
	e, err := parse(msg)
	if err != nil {
		return
	}
	if e.id != nil {
		m.routeAnswer(e)
		return
	}
	m.mu.Lock()
	to := m.sessions[e.session].client
	m.mu.Unlock()
	m.follow(e)
	if to != nil {
		to.send(e.reply(nil, to.first))
	}
}

func (m *Mux) routeAnswer(e envelope) {
	c := m.answered(e.id)
	switch {
	case c == nil:
	case c.client == nil:
		c.answer(e, nil)
	default:
		c.client.send(e.reply(c.id, c.client.first))
	}
}

// answered takes the call with this id out of those that wait.
func (m *Mux) answered(id []byte) *call {
	var n int32
	if json.Unmarshal(id, &n) != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.pending[n]
	if c != nil {
		delete(m.pending, n)
		if c.client != nil {
			c.client.waiting--
		}
	}
	return c
}

// tooLarge answers the call whose answer is too large to be carried.
func (m *Mux) tooLarge(head []byte) {
	id := leadingID(head)
	if id == nil {
		return // an event: whoever misses it does not wait for it
	}
	c := m.answered(id)
	switch {
	case c == nil:
	case c.client == nil:
		c.answer(envelope{}, errTooLarge)
	default:
		c.client.send(refusal(c.id, c.client.outer(c.session), codeServer, fmt.Sprintf("The answer is larger than the %d MiB that one message may have.", MaxMessage>>20)))
	}
}

// follow keeps track of the sessions that come and go. Their events come in the session
// that attached them.
func (m *Mux) follow(e envelope) {
	switch e.method {
	case "Target.attachedToTarget":
		if child := sessionIn(e.params); child != "" {
			m.attached(child, e.session)
		}
	case "Target.detachedFromTarget":
		if child := sessionIn(e.params); child != "" {
			m.detached(child)
		}
	}
}

func sessionIn(params []byte) string {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	return p.SessionID
}

// attached gives a session to the client in whose session it was attached.
func (m *Mux) attached(child, parent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if owner := m.sessions[parent].client; owner != nil {
		m.sessions[child] = session{owner, parent}
	}
}

// detached drops a session with all that was attached in it: the browser says nothing more
// in them, and answers nothing.
func (m *Mux) detached(gone string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.sessions[gone]
	m.drop(gone)
	if known && s.parent == "" {
		s.client.lost()
	}
}

// drop needs mu.
func (m *Mux) drop(gone string) {
	delete(m.sessions, gone)
	for id, c := range m.pending {
		if c.client != nil && c.session == gone {
			c.client.waiting--
			delete(m.pending, id)
		}
	}
	for child, s := range m.sessions {
		if s.parent == gone {
			m.drop(child)
		}
	}
}

// Call asks the browser and decodes the result, which may be nil, into result. sessionID is
// that of a session which the caller attached itself with Target.attachToTarget (flatten:
// true), or "" for the browser. The browser's refusal is an *Error.
//
// Call is for whoever owns the browser: nothing is refused.
func (m *Mux) Call(ctx context.Context, sessionID, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	if params == nil {
		text = nil
	}
	answered := make(chan error, 1)
	id, err := m.post(&call{session: sessionID, answer: func(e envelope, err error) {
		if err == nil {
			err = e.result(result)
		}
		answered <- err // has room for the one
	}}, method, text)
	if err == nil {
		select {
		case err = <-answered:
		case <-ctx.Done():
			m.forget(id)
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	return nil
}

// result decodes an answer.
func (e envelope) result(into any) error {
	for _, m := range e.rest {
		switch string(m.key) {
		case `"error"`:
			refused := &Error{}
			if err := json.Unmarshal(m.value, refused); err != nil {
				return err
			}
			return refused
		case `"result"`:
			if into == nil {
				return nil
			}
			return json.Unmarshal(m.value, into)
		}
	}
	return errors.New("an answer without a result")
}

// post sends a command and makes its answer awaited.
func (m *Mux) post(c *call, method string, params []byte) (id int32, err error) {
	if id, err = m.register(c); err != nil {
		return 0, err
	}
	if err := m.write(command(id, method, c.session, params)); err != nil {
		m.forget(id)
		return 0, err
	}
	return id, nil
}

func (m *Mux) register(c *call) (int32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, ErrClosed
	}
	if c.client != nil {
		if c.client.waiting >= maxPending {
			return 0, errTooMany
		}
		c.client.waiting++
	}
	for {
		if m.last == math.MaxInt32 {
			m.last = 0
		}
		m.last++
		if m.pending[m.last] == nil {
			m.pending[m.last] = c
			return m.last, nil
		}
	}
}

func (m *Mux) forget(id int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.pending[id]; c != nil && c.client != nil {
		c.client.waiting--
	}
	delete(m.pending, id)
}

// write blocks while the browser does not read.
func (m *Mux) write(msg []byte) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if bytes.IndexByte(msg, 0) >= 0 {
		return errors.New("write message: a NUL within")
	}
	if _, err := m.pipe.Write(append(msg, 0)); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}
