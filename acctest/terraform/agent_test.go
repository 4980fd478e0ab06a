// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// agent is a single-node cluster under test.
type agent struct {
	kind  string // embedded or nomad
	dir   string
	addr  string // host:port
	token string
	api   *api.Client // made once, for several CLIs at a time
	rpc   int         // port of a real server
	guest bool        // a client of another one's server, whose jobs are not its own
	cmd   *exec.Cmd
	done  chan struct{}
}

// patience is how long a state of another process may take, on a machine that is busy.
const patience = 90 * time.Second

// The node's own order names the host first: whatever comes to the host without having
// asked for it, shows. It has no sandbox, whatever this machine has.
const pluginBlock = `
plugin "nomad-driver-botscreen" {
  config {
    allow_unsandboxed_host = true
    isolation_order = ["host", "docker", "apptainer"]
    state_dir = %q
    run_dir   = %q
    displays  = %q
    docker { endpoint = "unix:///nonexistent/docker.sock" }
    apptainer { path = "/nonexistent/apptainer" }
  }
}
`

// startEmbedded runs the agent of our own command.
func startEmbedded(t *testing.T, displays string) *agent {
	a := prepare(t, "embedded", displays)
	a.addr = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	a.run(t, binary(t, "botscreen"), "agent", "-dev", "-config", filepath.Join(a.dir, "plugin.hcl"),
		"-data-dir", filepath.Join(a.dir, "data"), "-plugin-dir", filepath.Join(a.dir, "plugins"), "-bind", a.addr)
	token, err := os.ReadFile(filepath.Join(a.dir, "data", "token"))
	if err != nil {
		t.Fatal(err)
	}
	a.token = strings.TrimSpace(string(token))
	a.connect(t)
	a.awaitNode(t)
	return a
}

// startNomad runs a real agent with ACLs.
func startNomad(t *testing.T, displays string) *agent {
	path, err := exec.LookPath("nomad")
	if err != nil {
		t.Skip("nomad is not on PATH")
	}
	a := prepare(t, "nomad", displays)
	http, rpc, serf := freePort(t), freePort(t), freePort(t)
	a.addr, a.rpc = fmt.Sprintf("127.0.0.1:%d", http), rpc
	config := filepath.Join(a.dir, "nomad.hcl")
	write(t, config, fmt.Sprintf(`
data_dir   = %q
plugin_dir = %q
bind_addr  = "127.0.0.1"
ports {
  http = %d
  rpc  = %d
  serf = %d
}
advertise {
  http = "127.0.0.1:%d"
  rpc  = "127.0.0.1:%d"
  serf = "127.0.0.1:%d"
}
server {
  enabled          = true
  bootstrap_expect = 1
}
client {
  enabled           = true
  servers           = ["127.0.0.1:%d"]
  network_interface = "lo"
  options {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }
}
acl { enabled = true }
`, filepath.Join(a.dir, "data"), filepath.Join(a.dir, "plugins"), http, rpc, serf, http, rpc, serf, rpc))
	a.run(t, path, "agent", "-config", config, "-config", filepath.Join(a.dir, "plugin.hcl"))
	a.connect(t)
	eventually(t, "the first token", func() bool {
		token, _, err := a.api.ACLTokens().Bootstrap(nil)
		if err == nil {
			a.token = token.SecretID
		}
		return err == nil
	})
	a.api.SetSecretID(a.token)
	a.awaitNode(t)
	return a
}

func prepare(t *testing.T, kind, displays string) *agent {
	t.Helper()
	// Not below the test's name: sockets have short paths.
	dir, err := os.MkdirTemp("", "tfacc")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // screens have uids of their own
		t.Fatal(err)
	}
	a := &agent{kind: kind, dir: dir}
	t.Cleanup(func() {
		a.end(t)
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "agent.log"))
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			t.Logf("last lines of the agent's log:\n%s", bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
		}
		_ = os.RemoveAll(dir)
	})
	for _, d := range []string{"plugins", "data", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	driver, err := os.ReadFile(binary(t, "nomad-driver-botscreen"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plugins", "nomad-driver-botscreen"), driver, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "plugin.hcl"), fmt.Sprintf(pluginBlock, filepath.Join(dir, "state"), filepath.Join(dir, "run"), displays))
	return a
}

// connect makes the client of whoever has the agent's token.
func (a *agent) connect(t *testing.T) {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: "http://" + a.addr, SecretID: a.token})
	if err != nil {
		t.Fatal(err)
	}
	a.api = client
}

func (a *agent) run(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(a.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(a.dir, "tmp")) // a killed agent leaves its plugins' sockets
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.cmd, a.done = cmd, make(chan struct{})
	done := a.done
	go func() { _ = cmd.Wait(); close(done) }()
	eventually(t, "answer of the agent", func() bool {
		conn, err := net.Dial("tcp", a.addr)
		return err == nil && conn.Close() == nil
	})
}

func (a *agent) awaitNode(t *testing.T) {
	t.Helper()
	eventually(t, "a ready node with the driver", func() bool {
		nodes, _, err := a.api.Nodes().List(nil)
		return err == nil && len(nodes) == 1 && nodes[0].Status == "ready" && nodes[0].Drivers["botscreen"] != nil && nodes[0].Drivers["botscreen"].Healthy
	})
}

// eventually polls a state of another process that has no event of its own.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still no %s after %s", what, patience)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
