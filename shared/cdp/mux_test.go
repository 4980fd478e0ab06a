// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func (m *Mux) browserPath() string { return "/devtools/browser/" + m.id }

// W5: clients use the same ids and hear what is theirs alone.
func TestW5ClientsAreApart(t *testing.T) {
	m, b := newBrowser(t)
	one, two := join(t, m, m.browserPath()), join(t, m, m.browserPath())
	one.write(`{"id":7,"method":"A.one"}`)
	first := b.called("A.one")
	two.write(`{"id":7,"method":"A.two","params":{"x":[1,"}"]}}`)
	second := b.called("A.two")
	if first.Session != "S1" || second.Session != "S2" || *first.ID == *second.ID || string(second.Params) != `{"x":[1,"}"]}` {
		t.Errorf("the browser got %+v and %+v", first, second)
	}
	b.event("S1", "A.happened", struct{}{})
	b.answer(second, map[string]string{"is": "two"})
	b.answer(first, map[string]string{"is": "one"})
	if msg := one.read(); msg.Method != "A.happened" || msg.Session != "" {
		t.Errorf("one heard %+v", msg)
	}
	if msg := one.read(); msg.ID == nil || *msg.ID != 7 || string(msg.Result) != `{"is":"one"}` || msg.Session != "" {
		t.Errorf("one was answered %+v", msg)
	}
	if msg := two.read(); msg.ID == nil || *msg.ID != 7 || string(msg.Result) != `{"is":"two"}` {
		t.Errorf("two was answered %+v", msg)
	}
}

// W5: a session is driven by the client that attached it, and by no other.
func TestW5ForeignSession(t *testing.T) {
	m, b := newBrowser(t)
	one, two := join(t, m, m.browserPath()), join(t, m, m.browserPath())
	if msg := one.call("", "Target.attachToTarget", map[string]any{"targetId": "T1", "flatten": true}); string(msg.Result) != `{"sessionId":"S3"}` {
		t.Fatalf("%+v", msg)
	}
	one.write(`{"id":9,"method":"Page.enable","sessionId":"S3"}`)
	asked := b.called("Page.enable")
	b.answer(asked, struct{}{})
	if msg := one.read(); *msg.ID != 9 || msg.Session != "S3" || asked.Session != "S3" {
		t.Errorf("%+v", msg)
	}
	for _, session := range []string{"S3", "S1", "S9"} {
		if msg := two.call(session, "Page.enable", struct{}{}); msg.Error == nil || msg.Error.Code != codeNoSession || msg.Session != session {
			t.Errorf("in %s: %+v", session, msg)
		}
	}
	// Once it is detached it is nobody's.
	b.event("S1", "Target.detachedFromTarget", map[string]string{"sessionId": "S3"})
	if msg := one.read(); msg.Method != "Target.detachedFromTarget" {
		t.Errorf("%+v", msg)
	}
	if msg := one.call("S3", "Page.enable", struct{}{}); msg.Error == nil || msg.Error.Code != codeNoSession {
		t.Errorf("%+v", msg)
	}
}

// W5, X18: a client whose far end has closed is detached, and only then is its connection
// closed: who cuts a client knows by its end that nothing goes on.
func TestX18EndSaysDetached(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	p.call("", "Target.attachToTarget", map[string]any{"targetId": "T1"})
	p.write(`{"id":2,"method":"Runtime.evaluate","sessionId":"S2"}`)
	late := b.called("Runtime.evaluate")
	b.mu.Lock()
	b.held = true
	b.mu.Unlock()
	must(t, p.conn.CloseWrite())
	if gone := <-b.gone; gone != "S1" {
		t.Errorf("detached is %s", gone)
	}
	select {
	case <-p.end:
		t.Error("the connection ended before the browser had detached it")
	default:
	}
	b.answer(late, "late") // an answer that comes now goes nowhere
	b.event("S2", "Page.screencastFrame", struct{}{})
	b.answer(b.called("Target.detachFromTarget"), struct{}{})
	wait(t, p.end, "the connection does not end")
	rest, _ := io.ReadAll(p.conn)
	if strings.Contains(string(rest), "late") || strings.Contains(string(rest), "screencast") {
		t.Errorf("after the cut came %q", rest)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.pending) > 0 || len(m.sessions) > 0 || m.clients > 0 {
		t.Errorf("left are %v, %v, %d", m.pending, m.sessions, m.clients)
	}
}

// A browser that does not answer holds nobody up for long.
func TestX18DetachIsBounded(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	b.mu.Lock()
	b.held = true
	b.mu.Unlock()
	must(t, p.conn.CloseWrite())
	wait(t, p.end, "the connection does not end")
}

// X17, X18: what hurts the others, or outlives its client, is refused with words and never
// reaches the browser.
func TestX18RefusedMethods(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	for _, method := range []string{"Browser.close", "Browser.crash", "Browser.crashGpuProcess", "Target.exposeDevToolsProtocol",
		"Target.setRemoteLocations", "Target.sendMessageToTarget", "Tethering.bind", "Extensions.loadUnpacked"} {
		msg := p.call("", method, struct{}{})
		if msg.Error == nil || !strings.HasPrefix(msg.Error.Message, method+" is refused: ") {
			t.Errorf("%s: %+v", method, msg)
		}
	}
	p.write(`{"id":99,"method":"Browser.getWindowForTarget"}`)
	b.answer(b.called("Browser.getWindowForTarget"), struct{}{})
	if msg := p.read(); *msg.ID != 99 || msg.Error != nil {
		t.Errorf("%+v", msg)
	}
}

// What is no command is answered, with its id where it has one, and reaches nobody.
func TestW5NoCommand(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	for _, text := range []string{
		``, `[]`, `{}`, `{"id":1}`, `{"id":"1","method":"A.b"}`, `{"id":1.5,"method":"A.b"}`, `{"id":99999999999,"method":"A.b"}`,
		`{"id":1,"id":2,"method":"A.b"}`, `{"id":1,"method":"A.b","method":"Browser.close"}`, `{"id":1,"method":"A.b","sessionId":"S1","sessionId":"S2"}`,
		`{"id":1,"method":"A.b","session\u0049d":"S2"}`, `{"id":1,"meth\u006fd":"Browser.close","method":"A.b"}`, `{"id":1,"method":"A\u002eb"}`,
		`{"id":1,"method":"A.b","params":[]}`, `{"id":1,"method":"A.b","params":{"x":}}`, `{"id":1,"method":"A.b"}{"id":2,"method":"A.b"}`,
		"{\"id\":1,\"method\":\"A.b\",\"params\":{\"x\":\"\xff\"}}", "{\"id\":1,\"method\":\"A.b\"}\x00{\"id\":2,\"method\":\"Browser.close\"}",
	} {
		must(t, p.ws.Write(t.Context(), websocket.MessageBinary, []byte(text)))
		if msg := p.read(); msg.Error == nil || msg.Error.Code != codeInvalid {
			t.Errorf("%q: %+v", text, msg)
		}
	}
	select {
	case msg := <-b.calls:
		t.Errorf("the browser got %+v", msg)
	default:
	}
}

// The mux's own calls: results, refusals, the end of the pipe and of patience.
func TestCall(t *testing.T) {
	m, b := newBrowser(t)
	targets, err := m.Targets(t.Context())
	if err != nil || len(targets) != 1 || targets[0].ID != "T1" || !targets[0].IsPage() {
		t.Errorf("%+v, %v", targets, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Call(ctx, "", "A.never", nil, nil) }()
	b.called("A.never")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	go func() { done <- m.Call(t.Context(), "S", "A.fails", nil, nil) }()
	asked := b.called("A.fails")
	b.send(message{ID: asked.ID, Error: &Error{Code: -32000, Message: "no"}, Session: "S"})
	var refused *Error
	if err := <-done; !errors.As(err, &refused) || refused.Message != "no" || asked.Session != "S" {
		t.Errorf("%v", err)
	}
	go func() { done <- m.Call(t.Context(), "", "A.lost", nil, nil) }()
	b.called("A.lost")
	must(t, b.conn.Close())
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	<-m.Done()
	if err := m.Call(t.Context(), "", "A.late", nil, nil); !errors.Is(err, ErrClosed) || !errors.Is(m.Err(), ErrClosed) {
		t.Errorf("%v, %v", err, m.Err())
	}
}

// Clients of a browser that ends are told.
func TestW5BrowserEnds(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, m.browserPath())
	idle, served := connect(t, m)
	answer, err := over(idle).Get("http://x/json/version")
	must(t, err)
	_ = answer.Body.Close()
	must(t, b.conn.Close())
	_, _, err = p.ws.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("%v", err)
	}
	wait(t, served, "an idle connection outlives the browser")
	conn, _ := connect(t, m)
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a browser that has ended is served")
	}
}

// A page that is gone ends the client that was connected to it.
func TestW5PageGoes(t *testing.T) {
	m, b := newBrowser(t)
	p := join(t, m, "/devtools/page/T1")
	p.write(`{"id":1,"method":"Page.enable"}`)
	b.answer(b.called("Page.enable"), struct{}{})
	if msg := p.read(); *msg.ID != 1 {
		t.Errorf("%+v", msg)
	}
	b.event("", "Target.detachedFromTarget", map[string]string{"sessionId": "S1"})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, _, err := p.ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("%v", err)
	}
}

// There are so many clients and no more, and a place is free again when one leaves.
func TestX34Clients(t *testing.T) {
	m, _ := newBrowser(t)
	var all []*program
	for range maxClients {
		all = append(all, join(t, m, m.browserPath()))
	}
	conn, _ := connect(t, m)
	_, resp, err := websocket.Dial(t.Context(), "ws://x"+m.browserPath(), &websocket.DialOptions{HTTPClient: over(conn)})
	if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("%v, %v", resp, err)
	}
	must(t, all[0].ws.Close(websocket.StatusNormalClosure, ""))
	wait(t, all[0].end, "it does not leave")
	join(t, m, m.browserPath())
}

// X34: of one client so many calls wait, and the next is answered at once.
func TestX34PendingCalls(t *testing.T) {
	m, b := newBrowser(t)
	go func() {
		for range b.calls { // never answered
		}
	}()
	t.Cleanup(func() { close(b.calls) })
	p := join(t, m, m.browserPath())
	for id := range maxPending + 1 {
		p.write(fmt.Sprintf(`{"id":%d,"method":"A.b"}`, id))
	}
	if msg := p.read(); *msg.ID != maxPending || msg.Error == nil || !strings.Contains(msg.Error.Message, "Too many calls") {
		t.Errorf("%+v", msg)
	}
	if msg := join(t, m, m.browserPath()).call("", "Browser.getVersion", struct{}{}); msg.Error != nil {
		t.Errorf("another client: %+v", msg)
	}
}
