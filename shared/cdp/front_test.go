// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// X18: whether a password field that people see is filled, in the page, in a frame of it and
// of another site, and whatever the page makes of its own functions.
func TestX18FilledPassword(t *testing.T) {
	m := startChromium(t)
	page := pageOf(t, m)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, map[string]string{
			"/empty":  `<input type="password"><input value="x">`,
			"/filled": `<input type="password" value="hunter2"><script>document.querySelectorAll = () => []; HTMLElement.prototype.getClientRects = () => []</script>`,
			"/unseen": `<input type="password" value="hunter2" style="display:none">`,
			"/frame":  `<iframe src="/filled"></iframe>`,
			"/site":   `<iframe src="http://localhost:` + r.URL.Query().Get("port") + `/filled"></iframe>`,
		}[r.URL.Path])
	}))
	t.Cleanup(site.Close)
	port := site.URL[len("http://127.0.0.1:"):]
	p := join(t, m, "/devtools/page/"+page)
	p.call("", "Page.enable", struct{}{})
	for path, want := range map[string]bool{"/empty": false, "/filled": true, "/unseen": false, "/frame": true, "/site?port=" + port: true} {
		p.call("", "Page.navigate", map[string]string{"url": site.URL + path})
		for p.read().Method != "Page.loadEventFired" {
		}
		front, err := m.Front(t.Context())
		if err != nil || front.Filled != want || front.URL != site.URL+path {
			t.Errorf("%s: %+v, %v", path, front, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sessions) > 1 {
		t.Errorf("sessions are left: %v", m.sessions)
	}
}
