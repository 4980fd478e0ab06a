// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/cdp"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

const (
	// reachLimit bounds the way to the browser, which may be asleep with its screen.
	reachLimit = 90 * time.Second
	// callLimit bounds one question to the browser: a page that is busy answers none.
	callLimit = 20 * time.Second
)

// driver is a connection to the screen's browser. The supervisor cuts it when a person takes
// the screen, so one that answers has not changed hands since it was opened (rule L15).
type driver struct {
	epoch lease.Epoch // of the whole life of the connection
	ws    *websocket.Conn
	done  chan struct{} // closed when it has ended

	mu       sync.Mutex // guards all below
	last     int
	pending  map[int]chan<- reply
	sessions map[string]string // by tab
}

// reply is what came back of a call.
type reply struct {
	ID     int
	Result json.RawMessage
	Error  *cdp.Error
}

var errCut = errors.New("the connection to the browser was cut")

// drive gives a connection under the lease that holds now, the one there is if it is still
// good.
func (b *Box) drive(ctx context.Context) (*driver, error) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	held, err := b.agentHolds(ctx)
	if err != nil {
		return nil, err
	}
	b.driving.Lock()
	defer b.driving.Unlock()
	if d := b.driver; d != nil {
		if d.epoch == held.Epoch && d.alive() {
			return d, nil
		}
		d.close()
		b.driver = nil
	}
	d, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	// Opened between two looks at one lease it belongs to that.
	d.epoch = held.Epoch
	if err := b.stillHolds(ctx, held.Epoch); err != nil {
		d.close()
		return nil, err
	}
	b.driver = d
	return d, nil
}

// agentHolds is the lease, if it is the agent's.
func (b *Box) agentHolds(ctx context.Context) (lease.Public, error) {
	held, err := b.client.Lease(ctx)
	if err == nil && held.Holder != lease.Agent {
		err = control.FromLease(&lease.HeldError{Lease: held})
	}
	return held, err
}

// stillHolds says what has become of the lease of this epoch, which was the agent's.
func (b *Box) stillHolds(ctx context.Context, epoch lease.Epoch) error {
	now, err := b.agentHolds(ctx)
	if err == nil && now.Epoch != epoch {
		err = control.FromLease(&lease.ChangedError{Seen: epoch, Now: now.Epoch})
	}
	return err
}

func (b *Box) connect(ctx context.Context) (*driver, error) {
	conn, err := b.client.Stream(ctx, control.CallCDP, nil, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	ws, _, err := websocket.Dial(ctx, "ws://screen/devtools/browser/"+cdp.CurrentBrowser, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open the browser's socket: %w", err)
	}
	ws.SetReadLimit(cdp.MaxMessage)
	d := &driver{ws: ws, done: make(chan struct{}), pending: map[int]chan<- reply{}, sessions: map[string]string{}}
	go d.read()
	return d, nil
}

// read hands out answers until the connection ends. Events are nobody's: none are asked for.
func (d *driver) read() {
	defer close(d.done)
	for {
		_, text, err := d.ws.Read(context.Background()) // close ends it
		if err != nil {
			_ = d.ws.CloseNow()
			return
		}
		var r reply
		if json.Unmarshal(text, &r) != nil || r.ID == 0 {
			continue
		}
		d.mu.Lock()
		answered := d.pending[r.ID]
		delete(d.pending, r.ID)
		d.mu.Unlock()
		if answered != nil {
			answered <- r // has room for the one
		}
	}
}

func (d *driver) alive() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

func (d *driver) close() { _ = d.ws.CloseNow() }

// call asks the browser, in the session of a tab or, with "", of its own.
func (d *driver) call(ctx context.Context, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answered := make(chan reply, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.pending[id] = answered
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.pending, id)
	}()
	command := map[string]any{"id": id, "method": method, "params": params}
	if params == nil {
		command["params"] = struct{}{}
	}
	if session != "" {
		command["sessionId"] = session
	}
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if err := d.ws.Write(ctx, websocket.MessageText, text); err != nil {
		return errCut
	}
	select {
	case r := <-answered:
		if r.Error != nil {
			return r.Error
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-d.done:
		return errCut
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// into attaches to a tab, once.
func (d *driver) into(ctx context.Context, tab string) (session string, err error) {
	d.mu.Lock()
	session = d.sessions[tab]
	d.mu.Unlock()
	if session != "" {
		return session, nil
	}
	var attached struct{ SessionID string }
	if err := d.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": tab, "flatten": true}, &attached); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[tab] = attached.SessionID
	return attached.SessionID, nil
}

// evaluate gives the value of an expression in a page.
func (d *driver) evaluate(ctx context.Context, session, expression string, into any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	err := d.call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	switch {
	case err != nil:
		return err
	case got.ExceptionDetails != nil:
		return fmt.Errorf("the page refuses: %s", got.ExceptionDetails.Text)
	}
	return json.Unmarshal(got.Result.Value, into)
}
