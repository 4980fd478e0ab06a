// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/relay"
)

// servePage serves a page whose screen is the given dial.
func servePage(t *testing.T, dial func(context.Context) (net.Conn, error)) (p *page, ended chan error) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p, err := openPage(dial, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() { ended <- p.serve(ctx) }()
	t.Cleanup(func() { cancel(); p.close() })
	return p, ended
}

func noScreen(context.Context) (net.Conn, error) {
	return nil, failf(exitFailed, "The screen has ended\x1b[31m.")
}

// visit asks the page's port for a path; change spoils the request.
func (p *page) visit(t *testing.T, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// enter opens the link as the file does and gives the cookie.
func (p *page) enter(t *testing.T) *http.Cookie {
	t.Helper()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`content="0; url=([^"]+)"`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the file leads nowhere: %s", text)
	}
	link, err := url.Parse(string(found[1]))
	if err != nil || link.Host != p.host {
		t.Fatalf("the file leads to %q, %v", found[1], err)
	}
	resp := p.visit(t, link.RequestURI(), nil)
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("opened: %s, %v", resp.Status, resp.Cookies())
	}
	return resp.Cookies()[0]
}

func with(cookie *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(cookie) }
}

// X27: the file is its user's alone and goes once it was used; the secret in it becomes a
// cookie that scripts cannot read, that goes to this page alone and never with another
// site's request.
func TestX27PageOpensForOneBrowser(t *testing.T) {
	p, _ := servePage(t, noScreen)
	for path, want := range map[string]fs.FileMode{p.file: 0o600, filepath.Dir(p.file): fs.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	if host, _, _ := net.SplitHostPort(p.host); host != "127.0.0.1" {
		t.Errorf("listens on %s", p.host)
	}
	cookie := p.enter(t)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Domain != "" || cookie.Path != p.base || len(p.base) != 45 || len(cookie.Value) != 43 {
		t.Errorf("the cookie is %+v", cookie)
	}
	if cookie.Value == p.once {
		t.Error("the address bar shows the cookie")
	}
	if _, err := os.Stat(p.file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	resp := p.visit(t, p.base, with(cookie))
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "Take over") ||
		!strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the page: %s, %d bytes", resp.Status, len(body))
	}
}

// X27: no other user, program, page or name gets anything.
func TestX27PageRefuses(t *testing.T) {
	dialled := false
	p, _ := servePage(t, func(context.Context) (net.Conn, error) { dialled = true; return noScreen(t.Context()) })
	cookie := p.enter(t)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.AddCookie(cookie)
			if name == "Host" {
				r.Host = value
				return
			}
			r.Header[name] = append(r.Header[name], value)
		}
	}
	_, port, _ := net.SplitHostPort(p.host)
	wrong := *cookie
	wrong.Value = strings.Repeat("x", len(cookie.Value))
	for name, tc := range map[string]struct {
		path   string
		change func(*http.Request)
	}{
		"no cookie":           {p.base, nil},
		"wrong cookie":        {p.base, with(&wrong)},
		"socket, no cookie":   {p.base + "view", nil},
		"rebinding":           {p.base, header("Host", "evil.example:"+port)},
		"rebinding, loopback": {p.base, header("Host", "localhost:"+port)},
		"other port":          {p.base, header("Host", "127.0.0.1:1")},
		"foreign page":        {p.base + "view", header("Origin", "https://evil.example")},
		"page of a file":      {p.base + "view", header("Origin", "null")},
		"other local page":    {p.base + "view", header("Origin", "http://127.0.0.1:1")},
		"two origins": {p.base + "view", func(r *http.Request) {
			r.AddCookie(cookie)
			r.Header["Origin"] = []string{"http://" + p.host, "http://evil.example"}
		}},
		"wrong secret": {p.base + "open?once=" + strings.Repeat("x", 43), with(cookie)},
		"no secret":    {p.base + "open", with(cookie)},
		"no path":      {"/", nil},
	} {
		resp := p.visit(t, tc.path, tc.change)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 || strings.Contains(string(body), "<script") || resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s, %v, %.80q", name, resp.Status, resp.Cookies(), body)
		}
	}
	for _, path := range []string{"/", p.base + "x", p.base + "view/x", "/x/"} {
		if resp := p.visit(t, path, with(cookie)); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s with the cookie: %s", path, resp.Status)
		}
	}
	if resp := p.visit(t, p.base, func(r *http.Request) { r.Method = http.MethodPost; r.AddCookie(cookie) }); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
	if dialled {
		t.Error("one of them reached the screen")
	}
}

// X27: when the link is opened a second time the page closes for everybody, and says so.
func TestX27PageClosesWhenItsLinkIsUsedAgain(t *testing.T) {
	p, ended := servePage(t, noScreen)
	cookie := p.enter(t)
	resp := p.visit(t, p.base+pathOpen+"?"+queryOnce+"="+p.once, nil)
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 || !strings.Contains(string(body), "closed") {
		t.Errorf("the second use: %s, %q", resp.Status, body)
	}
	if err := <-ended; !errors.Is(err, errUsedTwice) {
		t.Errorf("ended with %v", err)
	}
	if _, err := http.DefaultTransport.RoundTrip(mustRequest(t, "http://"+p.host+p.base, cookie)); err == nil {
		t.Error("the page is still served")
	}
}

func mustRequest(t *testing.T, address string, cookie *http.Cookie) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(cookie)
	return req
}

// X27: of many who open the link at once one gets the cookie.
func TestX27OneWinner(t *testing.T) {
	p, _ := servePage(t, noScreen)
	won := make(chan int, 50)
	for range cap(won) {
		go func() {
			resp, err := http.DefaultTransport.RoundTrip(mustRequest(t, p.link(), &http.Cookie{Name: "x", Value: "y"}))
			if err != nil { // it was closed already
				won <- 0
				return
			}
			defer resp.Body.Close()
			won <- len(resp.Cookies())
		}()
	}
	winners := 0
	for range cap(won) {
		winners += <-won
	}
	if winners != 1 {
		t.Errorf("%d got the cookie", winners)
	}
}

// A page hears in words why there is no screen, and nothing that a terminal obeys.
func TestPageSaysWhy(t *testing.T) {
	p, _ := servePage(t, noScreen)
	cookie := p.enter(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+p.host+p.base+"view", &websocket.DialOptions{
		HTTPHeader: http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}, "Origin": {"http://" + p.host}}, Subprotocols: []string{"botscreen"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = conn.Read(ctx)
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusCode(relay.Gone) || closed.Reason != "The screen has ended·[31m." {
		t.Errorf("%v", err)
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{"short": "short", strings.Repeat("a", 9): "aaaaa…", "aaaa€uro": "aaaa…", "€€€": "€…"} {
		if got := shorten(text, 8); got != want || len(got) > 8 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// X27: nothing of the secret is in the argument list of the browser.
func TestX27BrowserGetsAFile(t *testing.T) {
	dir := t.TempDir()
	script, heard := filepath.Join(dir, "browser"), filepath.Join(dir, "heard")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >'"+heard+".tmp'; mv '"+heard+".tmp' '"+heard+"'; exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", script+" --new:second")
	reported := make(chan error, 1)
	if !openBrowser("/x/open.html", func(err error) { reported <- err }) {
		t.Fatal("no browser")
	}
	if err := <-reported; !strings.Contains(err.Error(), "/x/open.html") {
		t.Errorf("reported %v", err)
	}
	if text, err := os.ReadFile(heard); err != nil || string(text) != "--new\n/x/open.html\n" {
		t.Errorf("the browser got %q, %v", text, err)
	}
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			if i := slices.Index(pairs, name); i >= 0 {
				return pairs[i+1]
			}
			return ""
		}
	}
	if argv := browserCommand(env()); argv != nil {
		t.Errorf("without a display: %q", argv)
	}
}
