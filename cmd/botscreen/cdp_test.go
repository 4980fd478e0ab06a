// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/cdp"
	"github.com/botscreen/botscreen/shared/control"
)

// gated is the port of `botscreen cdp` before a screen that answers each request with what
// it got.
type gated struct {
	*cdpGate
	mu       sync.Mutex // guards both below
	refusal  error
	reported []error
}

func newGated(t *testing.T) *gated {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{}
	g.cdpGate = newCDPGate(listener.Addr().String(), g.dial, func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reported = append(g.reported, err)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); <-done })
	return g
}

func (g *gated) dial(context.Context) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusal != nil {
		return nil, g.refusal
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		r := bufio.NewReader(far)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade") == "websocket" {
			_, _ = io.WriteString(far, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(far, r)
			return
		}
		text := fmt.Sprintf("%s %s %s", req.URL, req.Host, req.Header.Get(cdp.PrefixHeader))
		_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}()
	return near, nil
}

// get asks for a path, under a name and with headers.
func (g *gated) get(t *testing.T, host, path string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host, req.Header = host, header
	return answerTo(t, req)
}

// answerTo is the status and the body.
func answerTo(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// X27, BRW-06: the port serves only who knows the secret path, under this machine's own
// names and to no web page; the screen hears how its client reached it.
func TestX27CDPPort(t *testing.T) {
	g := newGated(t)
	code, body := g.get(t, g.host, g.prefix+"/json/version/", nil)
	if want := "/json/version/ " + g.host + " " + g.prefix; code != http.StatusOK || body != want {
		t.Errorf("%d %q, want %q", code, body, want)
	}
	if code, body = g.get(t, "localhost:"+g.port(), g.prefix+"/json/list?x=1", nil); body != "/json/list?x=1 localhost:"+g.port()+" "+g.prefix {
		t.Errorf("%d %q", code, body)
	}
	for _, path := range []string{"/", "/json/version", "/devtools/browser/current", g.prefix, g.prefix + "x/json/version", g.prefix[:len(g.prefix)-1] + "/json/version",
		"/" + strings.Repeat("A", len(g.prefix)-1) + "/json/version", "/json/version" + g.prefix + "/", "//" + g.prefix[1:] + "/json/version"} {
		if code, body := g.get(t, g.host, path, nil); code != http.StatusForbidden || strings.Contains(body, g.prefix) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	for _, host := range []string{"bots.example", "bots.example:" + g.port(), "127.0.0.1", "localhost.evil.example:" + g.port()} {
		if code, _ := g.get(t, host, g.prefix+"/json/version", nil); code != http.StatusForbidden {
			t.Errorf("as %s: %d", host, code)
		}
	}
	for _, header := range []http.Header{{"Origin": {"http://" + g.host}}, {"Sec-Fetch-Site": {"none"}}} {
		if code, _ := g.get(t, g.host, g.prefix+"/json/version", header); code != http.StatusForbidden {
			t.Errorf("with %v: %d", header, code)
		}
	}
	if len(g.prefix) < 40 || newCDPGate(g.host, nil, nil).prefix == g.prefix {
		t.Errorf("the secret is %q", g.prefix)
	}
}

// BRW-09: while a person has the screen, a program reads why it is refused, and so does who
// runs the command.
func TestBRW09CDPPortSaysWhoHolds(t *testing.T) {
	g := newGated(t)
	g.mu.Lock()
	g.refusal = &control.Error{Kind: control.HumanHasControl, Message: "A person controls this screen.", Next: "Wait for the hand-back."}
	g.mu.Unlock()
	code, body := g.get(t, g.host, g.prefix+"/json/version", nil)
	if code != http.StatusConflict || !strings.Contains(body, "A person controls this screen. Wait for the hand-back.") {
		t.Errorf("%d %q", code, body)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.reported) != 1 || !errors.Is(g.reported[0], g.refusal) {
		t.Errorf("reported: %v", g.reported)
	}
}

// A WebSocket is carried both ways, and ends with the screen's end of it.
func TestCDPPortCarriesSockets(t *testing.T) {
	g := newGated(t)
	conn, err := net.Dial("tcp", g.host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", strings.TrimPrefix(g.socket(), "ws://"+g.host), g.host)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	_, _ = io.WriteString(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}
