// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"encoding/json"
	"testing"

	"github.com/botscreen/botscreen/shared/cdp/cdptest"
)

// startChromium is a real browser, which ends with the test.
func startChromium(t *testing.T) *Mux {
	t.Helper()
	m := New(cdptest.Chromium(t))
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// into attaches to the page there is and returns the session.
func (p *program) into(target string) string {
	p.t.Helper()
	msg := p.call("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true})
	var result struct{ SessionID string }
	if msg.Error != nil || json.Unmarshal(msg.Result, &result) != nil {
		p.t.Fatalf("%+v", msg)
	}
	return result.SessionID
}

// evaluate is the value of an expression.
func (p *program) evaluate(session, expression string) string {
	p.t.Helper()
	msg := p.call(session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	var result struct {
		Result struct{ Value json.RawMessage }
	}
	if msg.Error != nil || json.Unmarshal(msg.Result, &result) != nil {
		p.t.Fatalf("%s: %.300v", expression, msg)
	}
	return string(result.Result.Value)
}

func pageOf(t *testing.T, m *Mux) string {
	t.Helper()
	all, err := m.Targets(t.Context())
	must(t, err)
	for _, target := range all {
		if target.IsPage() {
			return target.ID
		}
	}
	t.Fatalf("no page among %+v", all)
	return ""
}

// W5, BRW-08: a real browser serves several clients over its one pipe, each apart from the
// others, with large results.
func TestW5Chromium(t *testing.T) {
	m := startChromium(t)
	page := pageOf(t, m)
	one, two, direct := join(t, m, m.browserPath()), join(t, m, "/devtools/browser/"+CurrentBrowser), join(t, m, "/devtools/page/"+page)
	first, second := one.into(page), two.into(page)
	if got := one.evaluate(first, "globalThis.seen = 1; 'x'.repeat(20e6)"); len(got) != 20e6+2 {
		t.Errorf("%d bytes", len(got))
	}
	if got := two.evaluate(second, "seen + 1"); got != "2" {
		t.Errorf("the page is another: %s", got)
	}
	if got := direct.evaluate("", "seen + 2"); got != "3" {
		t.Errorf("by its page's socket: %s", got)
	}
	if msg := two.call(first, "Runtime.evaluate", map[string]string{"expression": "1"}); msg.Error == nil || msg.Error.Code != codeNoSession {
		t.Errorf("in another's session: %+v", msg)
	}
	// Events of the one are not the other's.
	if msg := one.call(first, "Runtime.enable", struct{}{}); msg.Error != nil {
		t.Errorf("%+v", msg)
	}
	if got := two.evaluate(second, "console.log('here'); 7"); got != "7" {
		t.Errorf("%s", got)
	}
	for {
		msg := one.read()
		if msg.Method == "Runtime.consoleAPICalled" && msg.Session == first {
			break
		}
	}
	if msg := two.call("", "Browser.close", struct{}{}); msg.Error == nil {
		t.Error("a client closed the browser")
	}
	if got := two.evaluate(second, "8"); got != "8" {
		t.Errorf("%s", got)
	}
}

// X18, BRW-09: when a client is cut, the browser ends its scripts for new documents, its
// bindings and what it waited for; page and tab stay. A late answer reaches nobody.
func TestX18Chromium(t *testing.T) {
	m := startChromium(t)
	page := pageOf(t, m)
	agent := join(t, m, m.browserPath())
	session := agent.into(page)
	agent.evaluate(session, "globalThis.mark = 'here'")
	for method, params := range map[string]map[string]any{
		"Page.enable":                           {},
		"Runtime.enable":                        {},
		"Runtime.addBinding":                    {"name": "tell"},
		"Page.addScriptToEvaluateOnNewDocument": {"source": "globalThis.spy = 1"},
	} {
		if msg := agent.call(session, method, params); msg.Error != nil {
			t.Fatalf("%s: %+v", method, msg)
		}
	}
	agent.call(session, "Page.reload", struct{}{})
	for agent.read().Method != "Page.loadEventFired" {
	}
	if got := agent.evaluate(session, "globalThis.spy === 1 && typeof tell"); got != `"function"` {
		t.Fatalf("the agent's script does not run: %s", got)
	}
	agent.write(`{"id":999,"method":"Runtime.evaluate","params":{"expression":"new Promise(r => globalThis.finish = r)","awaitPromise":true},"sessionId":"` + session + `"}`)
	must(t, agent.conn.CloseWrite())
	wait(t, agent.end, "the client is not detached")

	person := join(t, m, m.browserPath())
	session = person.into(page)
	person.evaluate(session, "typeof finish === 'function' && (finish('late'), 1)")
	person.call(session, "Page.enable", struct{}{})
	person.call(session, "Page.reload", struct{}{})
	for person.read().Method != "Page.loadEventFired" {
	}
	if got := person.evaluate(session, "[typeof spy, typeof tell].join()"); got != `"undefined,undefined"` {
		t.Errorf("of the agent is left: %s", got)
	}
}
