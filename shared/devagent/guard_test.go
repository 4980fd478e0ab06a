// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// X9: who does not come with the token, under a loopback name and from no foreign
// page gets 403, no CORS header, and no job.
func TestX9DoorIsClosed(t *testing.T) {
	a := devagenttest.Start(t)
	token := tokenOf(t, a)
	text, err := json.Marshal(map[string]any{"Job": parse(t, a.Client, shell("evil", "exec sleep 1000", ""))})
	if err != nil {
		t.Fatal(err)
	}
	job := string(text)
	own := "http://" + a.Addr()
	port := a.Addr()[strings.LastIndexByte(a.Addr(), ':'):]
	cases := []struct {
		name    string
		headers map[string]string
		host    string
		allowed bool
	}{
		{name: "no token", headers: nil},
		{name: "wrong token", headers: map[string]string{"X-Nomad-Token": "x"}},
		{name: "empty token", headers: map[string]string{"X-Nomad-Token": ""}},
		{name: "a prefix of the token", headers: map[string]string{"X-Nomad-Token": token[:len(token)-1]}},
		{name: "token in another scheme", headers: map[string]string{"Authorization": "Basic " + token}},
		{name: "foreign host", headers: map[string]string{"X-Nomad-Token": token}, host: "evil.example"},
		{name: "foreign host with our port", headers: map[string]string{"X-Nomad-Token": token}, host: "evil.example" + port},
		{name: "a name that begins like ours", headers: map[string]string{"X-Nomad-Token": token}, host: "localhost.evil.example" + port},
		{name: "a name that looks like an address", headers: map[string]string{"X-Nomad-Token": token}, host: "127.0.0.1.evil.example"},
		{name: "another machine", headers: map[string]string{"X-Nomad-Token": token}, host: "10.0.0.1" + port},
		{name: "foreign origin", headers: map[string]string{"X-Nomad-Token": token, "Origin": "https://evil.example"}},
		{name: "origin null", headers: map[string]string{"X-Nomad-Token": token, "Origin": "null"}},
		{name: "origin of another port", headers: map[string]string{"X-Nomad-Token": token, "Origin": "http://127.0.0.1:1"}},
		{name: "cross site", headers: map[string]string{"X-Nomad-Token": token, "Sec-Fetch-Site": "cross-site"}},
		{name: "same site", headers: map[string]string{"X-Nomad-Token": token, "Sec-Fetch-Site": "same-site"}},
		{name: "text/plain without preflight", headers: map[string]string{"Content-Type": "text/plain", "Origin": "https://evil.example"}},
		{name: "bearer", headers: map[string]string{"Authorization": "Bearer " + token}, allowed: true},
		{name: "localhost", headers: map[string]string{"X-Nomad-Token": token}, host: "localhost" + port, allowed: true},
		{name: "IPv6 loopback", headers: map[string]string{"X-Nomad-Token": token}, host: "[::1]" + port, allowed: true},
		{name: "own origin", headers: map[string]string{"X-Nomad-Token": token, "Origin": own, "Sec-Fetch-Site": "same-origin"}, allowed: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodOptions} {
				if method == http.MethodOptions && c.allowed {
					continue
				}
				req, err := http.NewRequestWithContext(t.Context(), method, own+"/v1/jobs", strings.NewReader(job))
				if err != nil {
					t.Fatal(err)
				}
				req.Host = c.host
				for name, value := range c.headers {
					req.Header.Set(name, value)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if allowed := resp.StatusCode == 200; allowed != c.allowed || !allowed && resp.StatusCode != 403 {
					t.Errorf("%s: %d %s", method, resp.StatusCode, body)
				}
				for name := range resp.Header {
					if strings.HasPrefix(name, "Access-Control-") {
						t.Errorf("%s: header %s", method, name)
					}
				}
				if strings.Contains(string(body), token) {
					t.Error("the answer holds the token")
				}
			}
			jobs, _, err := a.Client.Jobs().List(nil)
			if err != nil {
				t.Fatal(err)
			}
			if (len(jobs) > 0) != c.allowed {
				t.Errorf("jobs: %v", jobs)
			}
			if c.allowed {
				if _, _, err := a.Client.Jobs().Deregister("evil", true, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// X9: another user of the machine can neither read the token nor start a job.
func TestX9AnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	a := devagenttest.Start(t)
	cmd := exec.Command("/bin/cat", devagent.TokenFile(a.DataDir()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), tokenOf(t, a)) {
		t.Errorf("cat: %v, %s", err, out)
	}
}

// A token that others can read is refused, and so is an empty one.
func TestX9LooseTokenIsRefused(t *testing.T) {
	d := devagenttest.NewDirs(t)
	if err := os.MkdirAll(d.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"secret": "want a file that only its owner may read", "": "is empty"} {
		mode := os.FileMode(0o644)
		if text == "" {
			mode = 0o600
		}
		if err := os.WriteFile(devagent.TokenFile(d.Data), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(devagent.TokenFile(d.Data), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := devagent.New(t.Context(), d.Config(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func dialExec(t *testing.T, a *devagenttest.Agent, alloc *api.Allocation, query string, h http.Header) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+a.Addr()+"/v1/client/allocation/"+alloc.ID+"/exec?task=t&"+query,
		&websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// The frames are those of Nomad, byte for byte (protocol 7.2).
func TestExecFrames(t *testing.T) {
	a, alloc := start(t, "frames", "exec sleep 1000", "")
	h := http.Header{"X-Nomad-Token": {tokenOf(t, a)}}
	conn := dialExec(t, a, alloc, `command=["cat"]`, h)
	send := func(text string) {
		t.Helper()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() string {
		t.Helper()
		kind, text, err := conn.Read(t.Context())
		if err != nil || kind != websocket.MessageText {
			t.Fatalf("kind %v, error %v", kind, err)
		}
		return string(text)
	}
	send(`{}`)
	send(`{"stdin":{"data":"` + base64.StdEncoding.EncodeToString([]byte("hi\n")) + `"}}`)
	if got := receive(); got != `{"stdout":{"data":"aGkK"}}` {
		t.Errorf("got %s", got)
	}
	send(`{"stdin":{"close":true}}`)
	closes := map[string]bool{}
	for {
		got := receive()
		if strings.Contains(got, "exited") {
			if got != `{"exited":true,"result":{}}` {
				t.Errorf("got %s", got)
			}
			break
		}
		closes[got] = true
	}
	if !closes[`{"stdout":{"close":true}}`] || !closes[`{"stderr":{"close":true}}`] {
		t.Errorf("got %v", closes)
	}

	conn = dialExec(t, a, alloc, `command=["sh","-c","exit%203"]`, h)
	for {
		if got := receive(); strings.Contains(got, "exited") {
			if got != `{"exited":true,"result":{"exit_code":3}}` {
				t.Errorf("got %s", got)
			}
			break
		}
	}
}

// Refusals are close frames: 1008 for the client's faults, 1011 for ours, the reason
// cut to what fits.
func TestExecCloseCodes(t *testing.T) {
	a, alloc := start(t, "codes", "exec sleep 1000", "")
	h := http.Header{"X-Nomad-Token": {tokenOf(t, a)}}
	for query, want := range map[string]struct {
		code   websocket.StatusCode
		reason string
	}{
		"":                       {websocket.StatusPolicyViolation, "command is not present"},
		"command=x":              {websocket.StatusPolicyViolation, "failed to parse command"},
		`command=["a"]&tty=yes!`: {websocket.StatusPolicyViolation, "tty value is not a boolean"},
		`command=["/nowhere/` + strings.Repeat("é", 100) + `"]`: {websocket.StatusInternalError, "rpc error: code = Unknown desc = "},
	} {
		conn := dialExec(t, a, alloc, query, h)
		_, _, err := conn.Read(t.Context())
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != want.code || !strings.HasPrefix(closed.Reason, want.reason) || len(closed.Reason) > 123 {
			t.Errorf("%s: got %v", query, err)
		}
	}
}

// A client without headers brings the token in its first frame.
func TestExecHandshake(t *testing.T) {
	a, alloc := start(t, "shake", "exec sleep 1000", "")
	first := func(text string) (string, error) {
		conn := dialExec(t, a, alloc, `ws_handshake=true&command=["echo","hi"]`, nil)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, got, err := conn.Read(ctx)
		return string(got), err
	}
	if got, err := first(`{"version":1,"auth_token":"` + tokenOf(t, a) + `"}`); err != nil || got != `{"stdout":{"data":"aGkK"}}` {
		t.Errorf("got %s, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"version":1,"auth_token":"wrong"}`: "Permission denied",
		`{"version":2,"auth_token":"x"}`:     "unexpected handshake value",
		`nonsense`:                           "unexpected handshake value",
	} {
		_, err := first(text)
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || closed.Reason != want {
			t.Errorf("%s: got %v", text, err)
		}
	}
	// Only exec is opened so, and no page of another site may.
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr()+"/v1/jobs?ws_handshake=true", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 403 {
		t.Errorf("jobs: %v, %v", resp.StatusCode, err)
	}
	_ = resp.Body.Close()
	_, resp, err = websocket.Dial(t.Context(), "ws://"+a.Addr()+"/v1/client/allocation/"+alloc.ID+`/exec?ws_handshake=true&task=t&command=["true"]`,
		&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
	if err == nil || resp.StatusCode != 403 {
		t.Errorf("foreign page: %v", err)
	}
}

// A second agent on the same data is refused, by name.
func TestOneAgentPerDataDirectory(t *testing.T) {
	d := devagenttest.NewDirs(t)
	a := devagenttest.StartIn(t, d)
	if _, err := devagent.New(t.Context(), d.Config(t)); err == nil || !strings.Contains(err.Error(), "another agent uses "+a.DataDir()) {
		t.Errorf("got %v", err)
	}
	address, err := devagent.LiveAddress(d.Data)
	if err != nil || address != a.Addr() {
		t.Errorf("got %s, %v", address, err)
	}
	a.Stop()
	if _, err := devagent.LiveAddress(d.Data); err == nil {
		t.Error("an agent that ended is live")
	}
}
