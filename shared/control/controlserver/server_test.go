// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

func TestCalls(t *testing.T) {
	backend := newEverything()
	c := open(t, backend, screen.RoleOperator)
	ctx := t.Context()

	status, err := c.Status(ctx)
	if err != nil || status.WireVersion != 1 || status.State != screen.Ready || status.Lease.Epoch != 7 {
		t.Errorf("status: %+v, %v", status, err)
	}
	holder, err := c.Lease(ctx)
	if err != nil || holder.Holder != lease.Human || holder.Viewer != "0123456789ab" {
		t.Errorf("lease: %+v, %v", holder, err)
	}
	shot, err := c.Screenshot(ctx, control.ScreenshotRequest{Rect: image.Rect(1, 2, 3, 4), Format: control.JPEG})
	if err != nil || string(shot.Data) != "pixels of (1,2)-(3,4)" || shot.Epoch != 9 || shot.Hash != "abc" || shot.Format != control.JPEG {
		t.Errorf("screenshot: %+v, %v", shot, err)
	}
	err = c.Stop(ctx, control.StopRequest{})
	var refusal *control.Error
	if !errors.As(err, &refusal) || refusal.Kind != control.Held || refusal.Holder != lease.Human || refusal.Epoch != 9 || refusal.Next == "" {
		t.Errorf("stop: %+v", err)
	}
	if err := c.Stop(ctx, control.StopRequest{Force: true}); err != nil || len(backend.stops) != 1 {
		t.Errorf("forced stop: %v, %v", err, backend.stops)
	}
	if _, err := c.Stats(ctx); control.KindOf(err) != control.Internal || !strings.Contains(err.Error(), "read cgroup") {
		t.Errorf("stats: %v", err)
	}
	close(backend.ended)
	exit, err := c.Wait(ctx)
	if err != nil || exit.Code != 3 || strings.ContainsRune(exit.Reason.String(), 0x1b) {
		t.Errorf("wait: %+v, %v", exit, err)
	}
	// The kernel says who called.
	for _, caller := range backend.callers {
		if caller.Role != screen.RoleOperator || caller.UID != os.Getuid() || caller.PID != os.Getpid() {
			t.Errorf("caller = %+v", caller)
		}
	}
}

// plain is a client below package control, for what that would never send.
func plain(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return control.Unix(path)(ctx) }}}
}

// ask makes a request and returns the answer's error, which every refusal must be.
func ask(t *testing.T, path, method, target string, header http.Header, body io.Reader) (int, *control.Error) {
	t.Helper()
	req, err := http.NewRequest(method, "http://x"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := plain(path).Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer resp.Body.Close()
	var answer struct{ Error *control.Error }
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 400 && (json.Unmarshal(text, &answer) != nil || answer.Error == nil || answer.Error.Message == "") {
		t.Errorf("%s %s: %d is no JSON error: %q", method, target, resp.StatusCode, text)
		return resp.StatusCode, &control.Error{}
	}
	return resp.StatusCode, answer.Error
}

// Every door may do what the table says and nothing else, and what a backend
// cannot do is not there for anybody.
func TestDoors(t *testing.T) {
	for _, role := range []screen.Role{screen.RoleOperator, screen.RoleAgent, screen.RoleControl, screen.RoleViewer} {
		s, path := openSocket(t, newEverything(), role)
		_, bare := openSocket(t, onlyStatus{}, role)
		served := s.handlers()
		for _, route := range control.Routes {
			target := strings.NewReplacer("{id}", "1", "{rest...}", "json/version").Replace(route.Path)
			if route.Call == control.CallEvents || route.Call == control.CallWait {
				if route.Allows(role) {
					continue // these do not end by themselves; they have tests of their own
				}
			}
			status, refusal := ask(t, path, route.Method, target, nil, nil)
			switch _, exists := served[route.Call]; {
			case !exists && status != http.StatusNotFound:
				t.Errorf("%s: %s is not there and answers %d", role, route.Call, status)
			case exists && (status == http.StatusForbidden) == route.Allows(role):
				t.Errorf("%s: %s answers %d, allowed: %v", role, route.Call, status, route.Allows(role))
			case exists && status == http.StatusForbidden && refusal.Kind != control.Forbidden:
				t.Errorf("%s: %s refused as %s", role, route.Call, refusal.Kind)
			}
			status, _ = ask(t, bare, route.Method, target, nil, nil)
			if there := status != http.StatusNotFound; there != (route.Call == control.CallStatus || route.Call == control.CallTunnel) {
				t.Errorf("%s: a bare supervisor answers %d to %s", role, status, route.Call)
			}
		}
	}
}

// Whatever is refused is refused in JSON.
func TestRefusals(t *testing.T) {
	_, path := openSocket(t, newEverything(), screen.RoleOperator)
	jsonHeader := http.Header{"Content-Type": {"application/json"}}
	large := strings.NewReader(`{"force":"` + strings.Repeat("x", maxBodyBytes) + `"}`)
	for name, tc := range map[string]struct {
		method, target string
		header         http.Header
		body           io.Reader
		status         int
		want           string
	}{
		"unknown path":   {"GET", "/v1/nothing", nil, nil, 404, "no call GET /v1/nothing"},
		"root":           {"GET", "/", nil, nil, 404, ""},
		"unclean":        {"GET", "/v1//status", nil, nil, 404, ""},
		"dots":           {"GET", "/v1/x/../status", nil, nil, 404, ""},
		"method":         {"POST", "/v1/status", nil, nil, 405, "only GET"},
		"escapes":        {"GET", "/%1b[31m", nil, nil, 404, ""},
		"bad since":      {"GET", "/v1/events?since=x", nil, nil, 400, "since"},
		"bad scale":      {"GET", "/v1/screenshot?scale=9", nil, nil, 400, "scale"},
		"field":          {"POST", "/v1/stop", jsonHeader, strings.NewReader(`{"forse":true}`), 400, "forse"},
		"two values":     {"POST", "/v1/stop", jsonHeader, strings.NewReader(`{} {}`), 400, "more than one"},
		"not JSON":       {"POST", "/v1/stop", jsonHeader, strings.NewReader(`force`), 400, ""},
		"form":           {"POST", "/v1/stop", http.Header{"Content-Type": {"text/plain"}}, strings.NewReader(`{"force":true}`), 400, "application/json"},
		"too large":      {"POST", "/v1/stop", jsonHeader, large, 400, "1048576"},
		"web page":       {"GET", "/v1/status", http.Header{"Origin": {"http://evil.example"}}, nil, 403, "Web pages"},
		"fetch metadata": {"GET", "/v1/status", http.Header{"Sec-Fetch-Site": {"cross-site"}}, nil, 403, "Web pages"},
		"exec plainly":   {"POST", "/v1/exec", jsonHeader, strings.NewReader(`{"argv":["true"]}`), 400, "Upgrade: botscreen"},
		"exec nothing": {"POST", "/v1/exec", http.Header{"Content-Type": {"application/json"}, "Connection": {"Upgrade"}, "Upgrade": {"botscreen"}},
			strings.NewReader(`{"argv":[]}`), 400, "argv"},
		"tunnel": {"GET", "/v1/tunnel?command=botscreen:root", http.Header{"Connection": {"upgrade"}, "Upgrade": {"botscreen"}}, nil, 400, "botscreen:root"},
	} {
		t.Run(name, func(t *testing.T) {
			status, refusal := ask(t, path, tc.method, tc.target, tc.header, tc.body)
			if status != tc.status || !strings.Contains(refusal.Message+refusal.Next, tc.want) {
				t.Errorf("%d: %+v, want %d and %q", status, refusal, tc.status, tc.want)
			}
			if strings.ContainsRune(refusal.Message, 0x1b) {
				t.Error("an escape came back")
			}
		})
	}
}

// A header larger than its limit, and a body that does not come, end the connection.
func TestSlowAndLargeCallers(t *testing.T) {
	_, path := openSocket(t, newEverything(), screen.RoleOperator)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go fmt.Fprintf(conn, "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", bytes.Repeat([]byte("x"), 64<<10))
	answer, _ := io.ReadAll(conn)
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 431 ")) {
		t.Errorf("answer = %.100q", answer)
	}
	synctest.Test(t, func(t *testing.T) {
		for sent, most := range map[string]time.Duration{
			"": headerTimeout, "GET /v1/sta": headerTimeout,
			"POST /v1/stop HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{": bodyTimeout + time.Second,
		} {
			begin := time.Now()
			s := New(newEverything(), slog.New(slog.DiscardHandler))
			near, far := net.Pipe()
			served := make(chan struct{})
			go func() { s.ServeConn(far, Caller{Role: screen.RoleOperator}); close(served) }()
			go near.Write([]byte(sent))
			io.ReadAll(near)
			<-served
			if took := time.Since(begin); took > most {
				t.Errorf("%q: ended after %v, want %v", sent, took, most)
			}
			near.Close()
			s.Shutdown(t.Context())
		}
	})
}

// A call that waits is not ended by the limits that end slow callers.
func TestWaitIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newEverything()
		s := New(backend, slog.New(slog.DiscardHandler))
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() { s.ServeConn(far, Caller{Role: screen.RoleOperator}); close(served) }()
		c := control.NewClient(func(context.Context) (net.Conn, error) { return near, nil })
		time.AfterFunc(24*time.Hour, func() { close(backend.ended) })
		exit, err := c.Wait(t.Context())
		if err != nil || exit.Code != 3 {
			t.Errorf("%+v, %v", exit, err)
		}
		// The same connection serves the next call.
		if _, err := c.Status(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
		<-served
		s.Shutdown(t.Context())
	})
}

func TestEvents(t *testing.T) {
	backend := newEverything()
	c := open(t, backend, screen.RoleViewer)
	backend.publish(control.Event{Seq: 5, Name: control.EventReady}, control.Event{Seq: 6, Name: control.EventTaken})
	var names []control.EventName
	for event, err := range c.Events(t.Context(), 5) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, event.Name)
		if len(names) == 1 {
			backend.publish(control.Event{Seq: 7, Name: control.EventHandedBack, Reason: screen.Distrust("bye\nbye")})
			continue
		}
		if event.Reason.String() != "bye·bye" {
			t.Errorf("reason = %q", event.Reason)
		}
		break
	}
	if len(names) != 2 || names[0] != control.EventTaken || names[1] != control.EventHandedBack {
		t.Errorf("events = %v", names)
	}
	// The end of the caller's context is the error, once.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for event, err := range c.Events(ctx, 0) {
		if last = err; event.Seq == 7 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("after the end: %v", last)
	}
}

// A quiet stream shows that it lives, and Shutdown ends it.
func TestEventsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newEverything()
		s := New(backend, slog.New(slog.DiscardHandler))
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() { s.ServeConn(far, Caller{Role: screen.RoleAgent}); close(served) }()
		begin := time.Now()
		go fmt.Fprint(near, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
		buf := make([]byte, 4096)
		var text string
		for !strings.HasSuffix(text, "1\r\n\n\r\n") { // one chunk of one empty line
			n, err := near.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			text += string(buf[:n])
		}
		if took := time.Since(begin); took != signOfLife {
			t.Errorf("first sign of life after %v", took)
		}
		go io.Copy(io.Discard, near)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
		near.Close()
	})
}

// X34: one picture at a time, a few in line, then busy; waiting calls are counted.
func TestX34Limits(t *testing.T) {
	backend := newEverything()
	_, path := openSocket(t, backend, screen.RoleOperator)
	clients := make([]*control.Client, 30)
	for i := range clients {
		clients[i] = control.NewClient(control.Unix(path))
		defer clients[i].Close()
	}
	answers := make(chan error, len(clients))
	for _, c := range clients {
		go func() {
			_, err := c.Screenshot(t.Context(), control.ScreenshotRequest{Scale: 0.5})
			answers <- err
		}()
	}
	// 9 find a place and stay; everybody else is told at once.
	for range len(clients) - 9 {
		if err := <-answers; control.KindOf(err) != control.Busy {
			t.Fatalf("too many: %v", err)
		}
	}
	close(backend.release)
	for range 9 {
		if err := <-answers; err != nil {
			t.Errorf("in line: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, c := range clients[:20] {
		go func() {
			_, err := c.Wait(ctx)
			answers <- err
		}()
	}
	for range 12 {
		if err := <-answers; control.KindOf(err) != control.Busy {
			t.Fatalf("too many waits: %v", err)
		}
	}
	cancel()
	for range 8 {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("waiting: %v", err)
		}
	}
}

// The stream of a reserved command has the role of the command.
func TestTunnels(t *testing.T) {
	_, path := openSocket(t, newEverything(), screen.RoleOperator)
	operator := control.NewClient(control.Unix(path))
	defer operator.Close()
	for command, mayStop := range map[string]bool{control.CommandControl: true, control.CommandAgent: false} {
		far := control.NewClient(func(ctx context.Context) (net.Conn, error) {
			conn, err := operator.Tunnel(ctx, command)
			if err != nil {
				return nil, err
			}
			return conn, control.OpenTunnel(ctx, conn, control.Hello{Viewer: "anna"})
		})
		if status, err := far.Status(t.Context()); err != nil || status.Profile != "bot" {
			t.Errorf("%s: %+v, %v", command, status, err)
		}
		err := far.Stop(t.Context(), control.StopRequest{Force: true})
		if (err == nil) != mayStop || err != nil && control.KindOf(err) != control.Forbidden {
			t.Errorf("%s: stop: %v", command, err)
		}
		if _, err := far.Tunnel(t.Context(), control.CommandControl); (err == nil) != mayStop {
			t.Errorf("%s: a tunnel in the tunnel: %v", command, err)
		}
		far.Close()
	}
	conn, err := operator.Tunnel(t.Context(), control.CommandControl)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/status HTTP/1.1\r\n\r\n")
	answer, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), `{"v":1,"error":{"kind":"bad_request"`) || bytes.Count(answer, []byte("\n")) != 1 {
		t.Errorf("without a hello: %q", answer)
	}
}

// viewable relays by sending everything back.
type viewable struct{ onlyStatus }

func (viewable) View(_ context.Context, caller Caller, req control.ViewRequest) (func(context.Context, net.Conn), error) {
	switch caller.Viewer {
	case "bob":
		return nil, &control.Error{Kind: control.Busy, Message: "Not now."}
	case "eve":
		return nil, errors.New("disk on fire")
	}
	return func(_ context.Context, conn net.Conn) {
		defer conn.Close()
		fmt.Fprintf(conn, "%s %s %s %t\n", caller.Role, caller.Viewer.Handle(), req.Mode, req.Web)
		io.Copy(conn, conn)
	}, nil
}

// A viewer's stream belongs to the backend once that has admitted it; who is refused
// hears why. A supervisor that shows nothing does not know the command.
func TestViewerTunnel(t *testing.T) {
	_, path := openSocket(t, viewable{}, screen.RoleOperator)
	operator := control.NewClient(control.Unix(path))
	defer operator.Close()
	view := func(viewer lease.ViewerID) (net.Conn, error) {
		t.Helper()
		conn, err := operator.Tunnel(t.Context(), control.CommandRFB)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, control.OpenTunnel(t.Context(), conn, control.Hello{Viewer: viewer, Mode: control.Control, Web: viewer == "ann"})
	}
	conn, err := view("ann")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "pixels")
	want := fmt.Sprintf("viewer %s control true\npixels", lease.ViewerID("ann").Handle())
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for viewer, kind := range map[lease.ViewerID]control.Kind{"bob": control.Busy, "eve": control.Internal} {
		conn, err := view(viewer)
		if control.KindOf(err) != kind {
			t.Errorf("%s: %v, want %s", viewer.Handle(), err, kind)
		}
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: the stream goes on: %v", viewer.Handle(), err)
		}
	}
	_, bare := openSocket(t, onlyStatus{}, screen.RoleOperator)
	blind := control.NewClient(control.Unix(bare))
	defer blind.Close()
	if _, err := blind.Tunnel(t.Context(), control.CommandRFB); control.KindOf(err) != control.BadRequest {
		t.Errorf("a supervisor without a screen: %v", err)
	}
}

// ServeConn after Shutdown closes what it is given.
func TestServeConnAfterShutdown(t *testing.T) {
	s := New(onlyStatus{}, slog.New(slog.DiscardHandler))
	s.Shutdown(t.Context())
	near, far := net.Pipe()
	s.ServeConn(far, Caller{Role: screen.RoleOperator})
	if _, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read: %v", err)
	}
}
