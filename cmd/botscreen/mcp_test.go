// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// leased is a supervisor that can say who holds.
type leased struct{}

func (leased) Status(context.Context, controlserver.Caller) (control.Status, error) {
	return control.Status{State: screen.Ready}, nil
}

func (leased) Lease(context.Context) (lease.Public, error) {
	return lease.Public{Holder: lease.Agent, Epoch: 7, Since: time.Unix(0, 0)}, nil
}

func serveAgent(t *testing.T, path string) (end func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	listener, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor in its name is not open any more
	server := controlserver.New(leased{}, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener, screen.RoleAgent) }()
	return func() { _ = server.Shutdown(context.Background()); <-served; _ = os.Remove(path) }
}

// CLI-01: standard output carries the protocol alone, one JSON-RPC message a line, also
// when tools fail; the command ends well when the agent closes its input. A supervisor
// that was replaced is reached again.
func TestCLI01MCP(t *testing.T) {
	alloc := filepath.Join(t.TempDir(), strings.Repeat("deep", 30)) // longer than an address
	path := filepath.Join(alloc, "botscreen", "desk.sock")
	end := serveAgent(t, path)
	t.Setenv("NOMAD_ALLOC_DIR", alloc)
	in, agentIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	agentOut, out := io.Pipe()
	var errs, said bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(context.Background(), []string{"mcp"}, streams{in: in, out: out, errs: &errs})
		_ = out.Close()
	}()
	transport := &mcp.IOTransport{Reader: io.NopCloser(io.TeeReader(agentOut, &said)), Writer: agentIn}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(tool, want string) {
		t.Helper()
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		if err != nil {
			t.Fatal(err)
		}
		if text := result.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, want) {
			t.Errorf("%s says %q", tool, text)
		}
	}
	call("lease", "Epoch 7")
	call("screenshot", "not completed") // this supervisor has no such call
	end()
	end = serveAgent(t, path)
	defer end()
	call("lease", "Epoch 7")
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "shout"}); err == nil {
		t.Error("an unknown tool was called")
	}
	_ = agentIn.Close()
	if got := <-code; got != exitOK || errs.Len() > 0 {
		t.Errorf("it ended with %d and said %q", got, &errs)
	}
	_ = session.Close()
	lines := bytes.Split(bytes.TrimSpace(said.Bytes()), []byte("\n"))
	for _, line := range lines {
		var message struct{ JSONRPC string }
		if json.Unmarshal(line, &message) != nil || message.JSONRPC != "2.0" {
			t.Errorf("it printed %q", line)
		}
	}
	if len(lines) < 4 {
		t.Errorf("it printed %d lines", len(lines))
	}
}

// What the command line must say before anything is served.
func TestMCPWrongUse(t *testing.T) {
	alloc := t.TempDir()
	for _, tc := range []struct {
		args []string
		dir  string
		code int
		says string
	}{
		{nil, "", exitUsage, "Say which screen"},
		{[]string{"a", "--socket", "/b"}, "", exitUsage, "not both"},
		{[]string{"a", "b"}, "", exitUsage, "accepts at most 1"},
		{nil, alloc, exitNotFound, "agent_socket"},
	} {
		t.Setenv("NOMAD_ALLOC_DIR", tc.dir)
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"mcp"}, tc.args...), streams{in: strings.NewReader(""), out: &out, errs: &errs})
		if code != tc.code || !strings.Contains(errs.String(), tc.says) || out.Len() > 0 {
			t.Errorf("%q: %d %q %q", tc.args, code, &out, &errs)
		}
	}
}

// A door that does not open is tried again for a while; what refuses is not.
func TestPatientDoor(t *testing.T) {
	shut := errors.New("shut")
	for name, tc := range map[string]struct {
		err   error // until the door opens
		opens time.Duration
		took  time.Duration
	}{
		"opens":    {shut, 2 * time.Second, 2 * time.Second},
		"shut":     {shut, time.Hour, doorPatience},
		"refuses":  {&control.Error{Kind: control.Forbidden, Message: "no"}, time.Hour, 0},
		"no such":  {failf(exitNotFound, "no screen"), time.Hour, 0},
		"open now": {shut, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				_, err := patient(func(context.Context) (net.Conn, error) {
					if time.Since(begin) < tc.opens {
						return nil, tc.err
					}
					return nil, nil
				})(t.Context())
				opened := tc.opens < time.Minute
				if took := time.Since(begin); (err == nil) != opened || took < tc.took || took > tc.took+doorPause {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}
