// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/devagent/agentconfig"
	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// announced is a stream that tells when a text was written to it.
type announced struct {
	mu   sync.Mutex // guards text and told
	text bytes.Buffer
	want string
	told bool
	seen chan struct{}
}

func (a *announced) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.text.Write(p)
	if !a.told && strings.Contains(a.text.String(), a.want) {
		a.told = true
		close(a.seen)
	}
	return n, err
}

func (a *announced) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// The agent tells what to export; its screens outlive it and are found by the next
// one.
func TestAgentCommand(t *testing.T) {
	d := devagenttest.NewDirs(t)
	use(t, d.Data)
	config := filepath.Join(t.TempDir(), "agent.hcl")
	text := `
plugin_dir = "` + d.Plugins + `"
plugin "` + devagenttest.PluginName + `" {
  config {
    dir = "` + d.Driver + `"
  }
}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := func() (stop func() result) {
		ctx, cancel := context.WithCancel(context.Background())
		out, errs := &announced{want: "export NOMAD_TOKEN=", seen: make(chan struct{})}, &announced{seen: make(chan struct{}), want: "\x00"}
		done := make(chan result, 1)
		go func() {
			code := run(ctx, []string{"agent", "-dev", "-config", config, "-bind", "127.0.0.1:0", "-log-level=warn"},
				streams{in: strings.NewReader(""), out: out, errs: errs})
			done <- result{code, out.String(), errs.String()}
		}()
		select {
		case <-out.seen:
		case r := <-done:
			t.Fatalf("the agent ended: %+v", r)
		}
		return func() result { cancel(); return <-done }
	}
	stop := agent()
	call(t, "run", jobFile(t, "desk", "ada", "")).want(t, exitOK, "is ready", "")
	awaitReady(t, "ada")
	r := stop()
	r.want(t, exitOK, `export NOMAD_TOKEN="$(cat '`+filepath.Join(d.Data, "token")+`')"`, "Screens that were running still do")
	r.want(t, exitOK, "This is for development", "")
	if token, err := os.ReadFile(filepath.Join(d.Data, "token")); err != nil || strings.Contains(r.out+r.errs, strings.TrimSpace(string(token))) {
		t.Errorf("the token was printed, or is not there: %v", err)
	}
	call(t, "status").want(t, exitNoNomad, "", "Nomad cannot be reached")

	stop = agent()
	call(t, "status").want(t, exitOK, "ada\tready\t", "")
	call(t, "stop", "ada").want(t, exitOK, "Stopped", "")
	stop()
}

func TestAgentRefuses(t *testing.T) {
	use(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "agent.hcl")
	if err := os.WriteFile(config, []byte("plugin \"x\" {\n  confg {}\n}\nacl {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := call(t, "agent", "-dev", "-config", config)
	r.want(t, exitUsage, "", `agent.hcl:2,3-8: Unsupported agent configuration; The embedded agent does not know the block "confg" in plugin "x".`)
	r.want(t, exitUsage, "", `agent.hcl:4,1-4: Unsupported agent configuration; The embedded agent does not know the block "acl"`)
	call(t, "agent", "-dev", "-log-level", "loud").want(t, exitUsage, "", `Unknown log level "loud"`)
}

// The driver is configured for development unless a file has a block for it.
func TestDefaultPlugin(t *testing.T) {
	blocks, added := withDefaultPlugin(nil, "/data")
	if !added || len(blocks) != 1 || blocks[0].Name != pluginName || blocks[0].Config["allow_unsandboxed_host"] != true || blocks[0].Config["state_dir"] != "/data/screens" {
		t.Errorf("got %+v", blocks)
	}
	c, err := agentconfig.Parse("x", []byte(`plugin "`+pluginName+`" {}`))
	if err != nil {
		t.Fatal(err)
	}
	if blocks, added := withDefaultPlugin(c.Plugins, "/data"); added || len(blocks) != 1 || blocks[0].Config != nil {
		t.Errorf("got %+v", blocks)
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:4646": true, "[::1]:4646": true, "127.9.9.9:1": true, "0.0.0.0:4646": false, "10.0.0.1:4646": false, "[::]:1": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
