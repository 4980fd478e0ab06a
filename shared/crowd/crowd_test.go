// SPDX-License-Identifier: MPL-2.0

package crowd

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

const most = 4

// hall is a server with a crowd: /hold waits until its body ends. It tells when a request
// is held, and when a connection is idle again, which its guest cannot see.
func hall(t *testing.T) (addr string, holding, idle chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	holding, idle = make(chan struct{}, 100), make(chan struct{}, 100)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hold":
			holding <- struct{}{}
			io.Copy(io.Discard, r.Body)
		case "/hijack":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
			rw.Flush()
			io.Copy(io.Discard, conn)
			conn.Close()
			return
		}
		io.WriteString(w, "here")
	})}
	Bound(server, most)
	state := server.ConnState
	server.ConnState = func(conn net.Conn, now http.ConnState) {
		state(conn, now)
		if now == http.StateIdle {
			idle <- struct{}{}
		}
	}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return ln.Addr().String(), holding, idle
}

type guest struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func come(t *testing.T, addr, said string) guest {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	g := guest{conn, t, bufio.NewReader(conn)}
	g.say(said)
	return g
}

func (g guest) say(text string) {
	g.t.Helper()
	if _, err := io.WriteString(g.Conn, text); err != nil {
		g.t.Fatal(err)
	}
}

// answered reports whether an answer comes, and not the end.
func (g guest) answered() bool {
	resp, err := http.ReadResponse(g.r, nil)
	if err != nil {
		return false
	}
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode < 400
}

func request(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// X34: of a thousand that begin a request and say no more, only a few are held, and
// somebody who asks is answered beside them.
func TestX34HalfOpen(t *testing.T) {
	addr, _, _ := hall(t)
	var silent []guest
	for range 1000 {
		silent = append(silent, come(t, addr, "GET / HTTP/1.1\r\nHos"))
	}
	for range 20 {
		if !come(t, addr, request("/")).answered() {
			t.Error("somebody who asked at once was not answered")
		}
	}
	for i, g := range silent[:1000-most] { // their end has come, or comes
		if g.answered() {
			t.Errorf("%d was answered", i)
		}
	}
}

// Who is being answered is not ended for others; where all are, a new one is refused,
// and is let in again when one is done.
func TestServingStays(t *testing.T) {
	addr, holding, idle := hall(t)
	var busy []guest
	for range most {
		busy = append(busy, come(t, addr, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"))
		<-holding
	}
	if come(t, addr, request("/")).answered() {
		t.Error("there was room for one more")
	}
	busy[0].say("x")
	if !busy[0].answered() {
		t.Error("it was ended while it was answered")
	}
	<-idle
	// It is idle now, and the one that has waited longest.
	late := come(t, addr, request("/"))
	if !late.answered() {
		t.Error("nobody made room")
	}
	busy[0].say(request("/"))
	if busy[0].answered() {
		t.Error("the idle one was not ended")
	}
}

// A hijacked connection counts no longer.
func TestHijacked(t *testing.T) {
	addr, _, _ := hall(t)
	for range 3 * most {
		g := come(t, addr, request("/hijack"))
		if line, err := g.r.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if !come(t, addr, request("/")).answered() {
		t.Error("not answered")
	}
}
