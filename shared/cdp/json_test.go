// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func (b *browser) ask(m *Mux, method, path, host string, header http.Header) (int, string) {
	b.t.Helper()
	conn, _ := connect(b.t, m)
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+host+path, nil)
	must(b.t, err)
	req.Header = header
	resp, err := over(conn).Do(req)
	must(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return resp.StatusCode, string(body)
}

// BRW-06: whatever the Host, the answer's addresses are those by which its client reached
// the endpoint.
func TestBRW06Addresses(t *testing.T) {
	m, b := newBrowser(t)
	for _, tc := range []struct{ host, prefix, base string }{
		{"127.0.0.1:9222", "", "ws://127.0.0.1:9222"},
		{"bots.example", "", "ws://bots.example"},
		{"[::1]:9", "/a-1_B", "ws://[::1]:9/a-1_B"},
		{"localhost:1", `/"><script>`, "ws://localhost:1"},
	} {
		for _, path := range []string{"/json/version", "/json/version/"} {
			code, body := b.ask(m, "GET", path, tc.host, http.Header{PrefixHeader: {tc.prefix}})
			var v map[string]string
			if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK ||
				v["webSocketDebuggerUrl"] != tc.base+m.browserPath() || v["Browser"] != "Chrome/1.2.3" || v["Protocol-Version"] != "1.3" {
				t.Errorf("%+v: %d %s", tc, code, body)
			}
		}
	}
}

func TestList(t *testing.T) {
	m, b := newBrowser(t)
	for _, path := range []string{"/json", "/json/list", "/json/list/"} {
		code, body := b.ask(m, "GET", path, "x", nil)
		var list []map[string]string
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK || len(list) != 1 || list[0]["id"] != "T1" ||
			list[0]["title"] != `A "page" <b>` || list[0]["url"] != "http://site.example/?q=1&r=2" || list[0]["webSocketDebuggerUrl"] != "ws://x/devtools/page/T1" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for path, want := range map[string]int{
		"/json/protocol": http.StatusNotFound, "/": http.StatusNotFound, "/devtools/browser/x": http.StatusNotFound, "/devtools/page/" + `%22`: http.StatusNotFound,
		"/json/new": http.StatusMethodNotAllowed,
	} {
		if code, body := b.ask(m, "GET", path, "x", nil); code != want || len(body) < 10 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	go func() {
		made := b.called("Target.createTarget")
		if string(made.Params) != `{"url":"http://a.example/?b=c\u0026d"}` {
			t.Errorf("made %s", made.Params)
		}
		b.answer(made, map[string]string{"targetId": "T2"})
		b.answer(b.called("Target.getTargetInfo"), map[string]any{"targetInfo": map[string]string{"targetId": "T2", "type": "page"}})
	}()
	if code, body := b.ask(m, "PUT", "/json/new?http://a.example/?b=c%26d", "x", nil); code != http.StatusOK || !strings.Contains(body, "ws://x/devtools/page/T2") {
		t.Errorf("%d %s", code, body)
	}
	go func() { b.answer(b.called("Target.closeTarget"), map[string]bool{"success": true}) }()
	if code, body := b.ask(m, "GET", "/json/close/T2", "x", nil); code != http.StatusOK || body != "Target is closing" {
		t.Errorf("%d %s", code, body)
	}
}

// X17: a web page that finds the endpoint gets nothing of it.
func TestX17NoWebPages(t *testing.T) {
	m, b := newBrowser(t)
	for _, header := range []http.Header{{"Origin": {"http://x"}}, {"Sec-Fetch-Site": {"same-origin"}}} {
		for _, path := range []string{"/json/version", m.browserPath()} {
			if code, _ := b.ask(m, "GET", path, "x", header); code != http.StatusForbidden {
				t.Errorf("%s with %v: %d", path, header, code)
			}
		}
	}
}
