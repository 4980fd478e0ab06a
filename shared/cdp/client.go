// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Codes of the errors that we answer with, as the browser uses them.
const (
	codeInvalid   = -32600
	codeServer    = -32000
	codeNoSession = -32001
)

// detachTimeout bounds how long a client that has left waits for the browser to end what
// it attached. The browser does that in the order of what it was sent.
const detachTimeout = 2 * time.Second

var errTooMany = errors.New("too many calls wait for their answers")

// client is one WebSocket with the browser session that it drives.
type client struct {
	mux   *Mux
	first string // its first session, which it does not name
	box   *outbox

	waiting int // calls of it that wait; guarded by mux.mu

	over  chan struct{} // closed when it is to end
	once  sync.Once
	end   websocket.StatusCode
	words string
}

// errNoTarget says that there is nothing to attach to.
var errNoTarget = errors.New("no such target")

// attach opens a session for a client: with the target, or with the browser itself.
func (m *Mux) attach(ctx context.Context, target string) (*client, error) {
	c := &client{mux: m, box: newOutbox(), over: make(chan struct{})}
	method, params := "Target.attachToBrowserTarget", []byte(`{}`)
	if target != "" {
		text, ok := plain([]byte(`"` + target + `"`))
		if !ok {
			return nil, errNoTarget
		}
		method, params = "Target.attachToTarget", []byte(`{"targetId":"`+text+`","flatten":true}`)
	}
	answered := make(chan error, 1)
	_, err := m.post(&call{answer: func(e envelope, err error) {
		var result struct {
			SessionID string `json:"sessionId"`
		}
		if err == nil {
			err = e.result(&result)
		}
		if err == nil {
			// Here, so that the session's first event finds its client.
			c.first = result.SessionID
			m.mu.Lock()
			m.sessions[c.first] = session{client: c}
			m.mu.Unlock()
		}
		answered <- err
	}}, method, params)
	if err != nil {
		return nil, err
	}
	select {
	case err = <-answered:
		return c, err
	case <-ctx.Done():
		go func() { // a session that comes now is nobody's
			if <-answered == nil {
				c.detach()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// detach ends what the client attached, in the browser too. It returns when the browser has
// done so, or does not answer.
func (c *client) detach() {
	c.box.close()
	m := c.mux
	m.mu.Lock()
	_, attached := m.sessions[c.first]
	m.drop(c.first)
	m.mu.Unlock()
	if !attached {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { // a browser that does not read keeps nobody
		answered <- m.Call(ctx, "", "Target.detachFromTarget", map[string]string{"sessionId": c.first}, nil)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// finish makes the client end, with the first reason given.
func (c *client) finish(code websocket.StatusCode, words string) {
	c.once.Do(func() {
		c.end, c.words = code, words
		close(c.over)
	})
}

// lost is called when the browser ended the client's first session: its page is gone.
func (c *client) lost() { c.finish(websocket.StatusGoingAway, "the page has gone") }

// send queues a message for the client. It is called by the reader of the pipe alone.
func (c *client) send(msg []byte) {
	if err := c.box.put(msg); errors.Is(err, errSlow) {
		c.box.close()
		c.finish(websocket.StatusPolicyViolation, "too slow: "+err.Error())
	}
}

// serve carries messages between the client and the browser until either ends.
func (c *client) serve(ws *websocket.Conn) {
	ws.SetReadLimit(MaxMessage)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { c.write(ctx, ws) })
	both.Go(func() {
		c.finish(c.read(ctx, ws))
	})
	select {
	case <-c.over:
	case <-c.mux.done:
		c.finish(websocket.StatusGoingAway, "the browser has ended")
	}
	c.close(ws)
	cancel()
	c.box.close()
	both.Wait()
}

// closeTimeout bounds how long a client is told why it ends.
const closeTimeout = time.Second

// close tells the client why; one that does not listen is just cut.
func (c *client) close(ws *websocket.Conn) {
	cut := time.AfterFunc(closeTimeout, func() { ws.CloseNow() })
	defer cut.Stop()
	if c.end == websocket.StatusPolicyViolation || c.end == websocket.StatusAbnormalClosure {
		cut.Reset(0) // nobody reads
	}
	_ = ws.Close(c.end, c.words)
	ws.CloseNow()
}

func (c *client) write(ctx context.Context, ws *websocket.Conn) {
	for {
		msg, ok := c.box.take()
		if !ok {
			return
		}
		if err := ws.Write(ctx, websocket.MessageText, msg); err != nil {
			c.finish(websocket.StatusAbnormalClosure, "")
			return
		}
		c.box.sent(len(msg))
	}
}

// read passes the client's commands on until it leaves, and returns how it is to be ended.
func (c *client) read(ctx context.Context, ws *websocket.Conn) (websocket.StatusCode, string) {
	for {
		_, frame, err := ws.Reader(ctx)
		var msg []byte
		if err == nil {
			msg, err = io.ReadAll(frame)
		}
		if err != nil {
			if code := websocket.CloseStatus(err); code != -1 {
				return websocket.StatusNormalClosure, ""
			}
			return websocket.StatusAbnormalClosure, ""
		}
		if err := c.pass(msg); err != nil {
			return websocket.StatusGoingAway, "the browser has ended"
		}
	}
}

// pass sends one command of the client on, or answers it. The error is the pipe's.
func (c *client) pass(msg []byte) error {
	e, err := parseCommand(msg)
	if err != nil {
		c.answer(refusal(e.id, e.session, codeInvalid, err.Error()))
		return nil
	}
	if why := refused(e); why != "" {
		c.answer(refusal(e.id, e.session, codeServer, why))
		return nil
	}
	session := e.session
	if session == "" {
		session = c.first
	}
	if !c.owns(session) {
		c.answer(refusal(e.id, e.session, codeNoSession, "Session with given id not found."))
		return nil
	}
	_, err = c.mux.post(&call{session: session, client: c, id: bytes.Clone(e.id)}, e.method, e.params)
	if errors.Is(err, errTooMany) {
		c.answer(refusal(e.id, e.session, codeServer, "Too many calls wait for their answers."))
		return nil
	}
	return err
}

func (c *client) owns(session string) bool {
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	return c.mux.sessions[session].client == c
}

// outer is a session as the client names it.
func (c *client) outer(session string) string {
	if session == c.first {
		return ""
	}
	return session
}

// answer queues an answer of ours. A client that reads none of them is cut as any other.
func (c *client) answer(msg []byte) { c.send(msg) }
