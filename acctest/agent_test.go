// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// agent is a single-node cluster under test: the embedded agent or a real Nomad. Tests
// see only its address, a token and our command.
type agent struct {
	t       *testing.T // of the variant; the agent ends with it
	variant string
	dir     string
	addr    string
	token   string
	command []string
	api     *api.Client
	cmd     *exec.Cmd
	done    chan struct{}
	log     string
	// isolation is what its jobs ask for; empty is host.
	isolation string
	after     []func() // run once the agent has ended
}

// startLimit is what an agent may take until its node is ready. A real server elects
// itself first.
const startLimit = 60 * time.Second

// pluginBlock configures the driver the same way for both kinds of agent.
const pluginBlock = `
plugin "nomad-driver-botscreen" {
  config {
    allow_unsandboxed_host = true
    state_dir = %q
    run_dir   = %q
    displays  = %q
    %s
  }
}
`

// newEmbedded starts the agent of our own command.
func newEmbedded(t *testing.T, options ...string) *agent {
	return newEmbeddedIn(t, func(*agent) {}, options...)
}

// newEmbeddedIn starts it in a directory that something was done to before.
func newEmbeddedIn(t *testing.T, before func(*agent), options ...string) *agent {
	a := prepare(t, "embedded", "22000-22099", options...)
	before(a)
	port := freePort(t)
	a.addr = fmt.Sprintf("http://127.0.0.1:%d", port)
	a.command = []string{binary(t, "botscreen"), "agent", "-dev", "-config", filepath.Join(a.dir, "agent.hcl"),
		"-data-dir", filepath.Join(a.dir, "data"), "-plugin-dir", filepath.Join(a.dir, "plugins"), "-bind", fmt.Sprintf("127.0.0.1:%d", port)}
	a.start()
	token, err := os.ReadFile(filepath.Join(a.dir, "data", "token"))
	if err != nil {
		t.Fatal(err)
	}
	a.token = strings.TrimSpace(string(token))
	a.awaitNode()
	return a
}

// newNomad starts a real agent, server and client with a data directory, where `nomad`
// is on PATH.
func newNomad(t *testing.T, acl bool, options ...string) *agent {
	path, err := exec.LookPath("nomad")
	if err != nil {
		t.Skip("nomad is not on PATH")
	}
	variant, displays := "nomad", "23000-23099"
	if acl {
		variant, displays = "nomad with ACLs", "24000-24099"
	}
	a := prepare(t, variant, displays, options...)
	http, rpc, serf := freePort(t), freePort(t), freePort(t)
	a.addr = fmt.Sprintf("http://127.0.0.1:%d", http)
	config := fmt.Sprintf(`
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
    # They look for hosts on the network.
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }
}
acl {
  enabled = %t
}
telemetry {
  publish_allocation_metrics = true
  collection_interval        = "1s"
}
`, filepath.Join(a.dir, "data"), filepath.Join(a.dir, "plugins"), http, rpc, serf, http, rpc, serf, rpc, acl)
	writeFile(t, filepath.Join(a.dir, "nomad.hcl"), config)
	a.command = []string{path, "agent", "-config", filepath.Join(a.dir, "nomad.hcl"), "-config", filepath.Join(a.dir, "agent.hcl")}
	a.start()
	if acl {
		a.bootstrap()
	}
	a.awaitNode()
	return a
}

// prepare makes an agent's directory: plugins, and the driver's block with further options.
func prepare(t *testing.T, variant, displays string, options ...string) *agent {
	t.Helper()
	needDesktop(t)
	a := &agent{t: t, variant: variant, dir: shortDir(t)}
	a.log = filepath.Join(a.dir, "agent.log")
	plugins := filepath.Join(a.dir, "plugins")
	if err := errors.Join(os.Mkdir(plugins, 0o755), os.Mkdir(filepath.Join(a.dir, "data"), 0o711)); err != nil {
		t.Fatal(err)
	}
	driver := filepath.Join(plugins, "nomad-driver-botscreen")
	if err := os.Link(binary(t, "nomad-driver-botscreen"), driver); err != nil {
		data, err := os.ReadFile(binary(t, "nomad-driver-botscreen"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(driver, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(a.dir, "agent.hcl"),
		fmt.Sprintf(pluginBlock, filepath.Join(a.dir, "state"), filepath.Join(a.dir, "run"), displays, strings.Join(options, "\n")))
	t.Cleanup(func() {
		a.stopAllJobs()
		a.end(syscall.SIGTERM)
		for _, f := range a.after {
			f()
		}
		if t.Failed() {
			a.showLog()
		}
	})
	return a
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freePort is a port nobody listens on at this moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start runs the agent's process; restarts use it too.
func (a *agent) start() {
	a.t.Helper()
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(a.command[0], a.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.cmd, a.done = cmd, make(chan struct{})
	done := a.done
	go func() { _ = cmd.Wait(); close(done) }()
	a.awaitAnswer()
}

// awaitAnswer waits for the HTTP API, whatever it says.
func (a *agent) awaitAnswer() {
	a.t.Helper()
	a.eventually("answer of the agent", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(a.addr, "http://"))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// awaitNode waits until the driver is healthy on a ready node.
func (a *agent) awaitNode() {
	a.t.Helper()
	a.eventually("a ready node with the driver", func() bool {
		nodes, _, err := a.client().Nodes().List(nil)
		if err != nil || len(nodes) != 1 || nodes[0].Status != "ready" {
			return false
		}
		driver := nodes[0].Drivers["botscreen"]
		return driver != nil && driver.Healthy
	})
}

// bootstrap waits for a leader and makes the first token.
func (a *agent) bootstrap() {
	a.t.Helper()
	a.eventually("the first token", func() bool {
		token, _, err := a.client().ACLTokens().Bootstrap(nil)
		if err != nil {
			return false
		}
		a.token = token.SecretID
		return true
	})
}

// end signals the agent's process and waits for it.
func (a *agent) end(sig syscall.Signal) {
	if a.cmd == nil {
		return
	}
	endWithin(20*time.Second, a.cmd.Process, sig, a.done)
	a.cmd = nil
}

// endWithin signals a process, waits for its end, and kills it where that takes longer.
func endWithin(limit time.Duration, p *os.Process, sig syscall.Signal, ended <-chan struct{}) {
	_ = p.Signal(sig)
	select {
	case <-ended:
	case <-time.After(limit):
		_ = p.Kill()
		<-ended
	}
}

// eventually polls a state of another process that has no event of its own.
func (a *agent) eventually(what string, ok func() bool) {
	a.t.Helper()
	a.within(startLimit, what, ok)
}

// within is eventually with a limit of its own.
func (a *agent) within(limit time.Duration, what string, ok func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.showLog()
			a.t.Fatalf("still no %s after %s", what, limit)
		}
		if a.done != nil {
			select {
			case <-a.done:
				a.showLog()
				a.t.Fatalf("the agent ended while waiting for %s", what)
			default:
			}
		}
	}
}

func (a *agent) showLog() {
	text, _ := os.ReadFile(a.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	a.t.Logf("last lines of the agent's log:\n%s", bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
}

func (a *agent) client() *api.Client {
	a.t.Helper()
	// One client, one pool of connections: an agent counts them.
	if a.api == nil {
		client, err := api.NewClient(&api.Config{Address: a.addr})
		if err != nil {
			a.t.Fatal(err)
		}
		a.api = client
	}
	a.api.SetSecretID(a.token)
	return a.api
}

func (a *agent) stopAllJobs() {
	if a.cmd == nil {
		return
	}
	client := a.client()
	jobs, _, err := client.Jobs().List(nil)
	if err != nil {
		return
	}
	for _, job := range jobs {
		_, _, _ = client.Jobs().Deregister(job.ID, true, nil)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if len(screens(a)) == 0 {
			return
		}
	}
}

// result is how one of our commands ended.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
}

// botscreen runs our command against the agent.
func (a *agent) botscreen(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t, "botscreen"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "NOMAD_ADDR=" + a.addr, "NOMAD_TOKEN=" + a.token}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("botscreen %v: %v", args, err)
	}
	return result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// begin starts our command, which goes on once it has said where it is, and reads that; it
// ends with the test at the latest.
func (a *agent) begin(t *testing.T, said any, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	cmd, stderr = exec.CommandContext(t.Context(), binary(t, "botscreen"), args...), &bytes.Buffer{}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "TMPDIR=" + a.dir, "NOMAD_ADDR=" + a.addr, "NOMAD_TOKEN=" + a.token}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if err := json.NewDecoder(stdout).Decode(said); err != nil {
		_ = cmd.Wait()
		t.Fatalf("botscreen %v: %v\n%s", args, err, stderr)
	}
	return cmd, stderr
}

// must runs our command and expects success.
func (a *agent) must(t *testing.T, args ...string) string {
	t.Helper()
	r := a.botscreen(t, args...)
	if r.code != 0 {
		t.Fatalf("botscreen %v: %s", args, r)
	}
	return r.stdout
}

// job writes a job file with one screen and the given lines in its config.
func (a *agent) job(t *testing.T, profile string, config ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), profile+".nomad.hcl")
	writeFile(t, path, fmt.Sprintf(`
job %[1]q {
  group "desk" {
    restart {
      attempts = 3
      interval = "10m"
      delay    = "1s"
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task %[1]q {
      driver = "botscreen"
      config {
        profile            = %[1]q
        isolation          = %[3]q
        geometry           = "800x600"
        min_free_memory_mb = 64
        start_timeout      = "60s"
        %[2]s
      }
      resources {
        cpu    = 50
        memory = 300
      }
      kill_timeout = "5s"
    }
  }
}
`, profile, strings.Join(config, "\n        "), cmp.Or(a.isolation, "host")))
	return path
}

// screenStatus is what `botscreen status SCREEN --json` says.
type screenStatus struct {
	Screen struct {
		Alloc  string `json:"alloc"`
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"screen"`
	Supervisor *struct {
		State   string `json:"state"`
		Display string `json:"display"`
		Fence   struct {
			Mode   string `json:"mode"`
			Reason string `json:"reason"`
		} `json:"fence"`
		Browser *struct {
			Running bool   `json:"running"`
			Sandbox string `json:"sandbox"`
		} `json:"browser"`
	} `json:"supervisor"`
}

func (a *agent) status(t *testing.T, profile string) screenStatus {
	t.Helper()
	var s screenStatus
	out := a.must(t, "status", profile, "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("status is not JSON: %v\n%s", err, out)
	}
	return s
}
