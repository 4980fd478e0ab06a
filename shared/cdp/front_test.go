// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
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
		front, err := m.Front(t.Context(), time.Minute)
		if err != nil || front.Filled != want || front.URL != site.URL+path {
			t.Errorf("%s: %+v, %v", path, front, err)
		}
	}
	for m.sessionCount() > 1 { // the last question's session is on its way out
		runtime.Gosched()
		if t.Context().Err() != nil {
			t.Fatal("sessions are left")
		}
	}
}

func (m *Mux) sessionCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// X18: a page counts as loaded again when the next document is there, however long that
// takes its server. Until then what the agent planted would get the keys.
func TestX18Reload(t *testing.T) {
	m := startChromium(t)
	page := pageOf(t, m)
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<p>here")
	}))
	t.Cleanup(site.Close)
	p := join(t, m, "/devtools/page/"+page)
	p.call("", "Page.enable", struct{}{})
	go func() { answer <- struct{}{} }() // a navigation is answered with the page's first bytes
	p.call("", "Page.navigate", map[string]string{"url": site.URL})
	<-asked
	for p.read().Method != "Page.loadEventFired" {
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, detach, err := m.Attach(ctx, page)
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	planted := func(expression string) (value string) {
		var got struct{ Result struct{ Value string } }
		if err := m.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression}, &got); err != nil {
			t.Fatal(err)
		}
		return got.Result.Value
	}
	if got := planted(`window.planted = "value"`); got != "value" {
		t.Fatalf("planted %q", got)
	}

	short, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Reload(short, page) }()
	<-asked // with its answer open
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the page was loaded again before it came: %v", err)
	}
	answer <- struct{}{}

	if got := planted(`window.planted = "value"`); got != "value" {
		t.Fatalf("planted %q", got)
	}
	go func() { done <- m.Reload(ctx, page) }()
	<-asked
	answer <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := planted(`window.planted ?? "gone"`); got != "gone" {
		t.Errorf("the new document holds %q", got)
	}
}

// X18: a page that says nothing may be the one in front, unless another has the focus.
func TestX18Unsure(t *testing.T) {
	page := func(id string) Target { return Target{ID: id, Type: "page", URL: "http://" + id} }
	seen, focused := look{glance: glance{Visible: true}}, look{glance: glance{Visible: true, Focused: true}}
	hidden, silent, gone := look{}, look{err: fmt.Errorf("look: %w", context.DeadlineExceeded)}, look{err: errors.New("no such target")}
	for name, test := range map[string]struct {
		looks []look
		want  Front
	}{
		"one":                     {[]look{seen}, Front{Target: "a", URL: "http://a"}},
		"the focus wins":          {[]look{seen, focused, seen}, Front{Target: "b", URL: "http://b"}},
		"one is silent":           {[]look{seen, silent}, Front{Target: "a", URL: "http://a", Unsure: true}},
		"silent beside the focus": {[]look{silent, focused}, Front{Target: "b", URL: "http://b"}},
		"one is gone":             {[]look{gone, seen}, Front{Target: "b", URL: "http://b"}},
		"nothing is seen":         {[]look{hidden, gone}, Front{}},
	} {
		targets := []Target{page("a"), page("b"), page("c")}[:len(test.looks)]
		if got := inFront(targets, test.looks); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
