// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAccSeparateClient runs a real Nomad as clusters have it, a server and a client apart,
// each with a data directory. A client that is stopped, or killed, and started again has the
// same desktops, and a person keeps control throughout; so does a server that comes back.
func TestAccSeparateClient(t *testing.T) {
	needDesktop(t)
	record(t, "client and server restarted apart", "nomad")
	path, err := exec.LookPath("nomad")
	if err != nil {
		t.Skip("nomad is not on PATH")
	}
	server, client := newSeparate(t, path)
	client.must(t, "run", client.job(t, "apart"))
	before := xservers(client)
	alloc := client.onlyAlloc(t, "apart")
	mine := leaseBy(t, client, "take", "apart", "--reason", "a captcha")
	for _, step := range []struct {
		name string
		of   *agent
		sig  syscall.Signal
	}{
		{"client stopped", client, syscall.SIGTERM}, {"client killed", client, syscall.SIGKILL}, {"server killed", server, syscall.SIGKILL},
	} {
		step.of.end(step.sig)
		step.of.start()
		client.awaitNode()
		client.eventually("the screen after: "+step.name, func() bool { return client.botscreen(t, "status", "apart").code == 0 })
		if now := client.onlyAlloc(t, "apart"); now != alloc || client.allocStatus(t, alloc) != "running" {
			t.Errorf("%s: the allocation is %s, %s", step.name, now, client.allocStatus(t, alloc))
		}
		if after := xservers(client); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: X servers %v became %v", step.name, before, after)
		}
		if l := leaseBy(t, client, "lease", "apart"); l.Holder != "human" || !l.You || l.Epoch != mine.Epoch {
			t.Errorf("%s: the lease %+v became %+v", step.name, mine, l)
		}
	}
	client.must(t, "release", "apart")
	screenshot(t, client, "apart")
	client.must(t, "stop", "apart")
	gone(t, client)
}

// newSeparate starts a server and a client of it.
func newSeparate(t *testing.T, path string) (server, client *agent) {
	client = prepare(t, "nomad client", "25000-25099")
	server = &agent{t: t, variant: "nomad server", dir: shortDir(t)}
	server.log = filepath.Join(server.dir, "agent.log")
	rpc, serf := freePort(t), freePort(t)
	write := func(a *agent, role string, ports [3]int) {
		a.addr = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
		config := fmt.Sprintf(`
data_dir  = %q
bind_addr = "127.0.0.1"
ports {
  http = %d
  rpc  = %d
  serf = %d
}
advertise {
  http = "127.0.0.1:%[2]d"
  rpc  = "127.0.0.1:%[3]d"
  serf = "127.0.0.1:%[4]d"
}
%[5]s
`, filepath.Join(a.dir, "data"), ports[0], ports[1], ports[2], role)
		writeFile(t, filepath.Join(a.dir, "nomad.hcl"), config)
		a.command = []string{path, "agent", "-config", filepath.Join(a.dir, "nomad.hcl")}
	}
	write(server, `server {
  enabled          = true
  bootstrap_expect = 1
}`, [3]int{freePort(t), rpc, serf})
	write(client, fmt.Sprintf(`plugin_dir = %q
client {
  enabled           = true
  servers           = ["127.0.0.1:%d"]
  network_interface = "lo"
  options {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }
}`, filepath.Join(client.dir, "plugins"), rpc), [3]int{freePort(t), freePort(t), freePort(t)})
	client.command = append(client.command, "-config", filepath.Join(client.dir, "agent.hcl"))
	client.after = append(client.after, func() { server.end(syscall.SIGTERM) })
	server.start()
	client.start()
	client.awaitNode()
	if text, err := os.ReadFile(server.log); err == nil && strings.Contains(string(text), "client: started") {
		t.Error("the server is a client too")
	}
	return server, client
}
