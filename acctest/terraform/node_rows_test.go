// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-SCR-5 nodes", f: nodeGone, desktop: true, real: "the embedded agent is one node and has no drain"},
	row{id: "T-TLS agent", f: mutualAgent, real: "the embedded agent speaks no TLS; T-TLS has a server before it that does"},
)

// secondNode is another client of a real server, in a pool of its own: the other
// rows must not meet it.
func (b *bench) secondNode(displays string) (node *agent, pool string) {
	b.Helper()
	path, err := exec.LookPath("nomad")
	if err != nil {
		b.Skip("nomad is not on PATH")
	}
	node, pool = prepare(b.T, "nomad", displays), "pool-"+b.prefix
	node.guest = true
	node.addr, node.token = fmt.Sprintf("127.0.0.1:%d", freePort(b.T)), b.agent.token
	write(b.T, filepath.Join(node.dir, "nomad.hcl"), fmt.Sprintf(`
data_dir   = %[1]q
plugin_dir = %[2]q
name       = %[3]q
bind_addr  = "127.0.0.1"
ports { http = %[4]s }
advertise {
  http = "127.0.0.1:%[4]s"
  rpc  = "127.0.0.1:1"
  serf = "127.0.0.1:1"
}
client {
  enabled           = true
  node_pool         = %[3]q
  servers           = ["127.0.0.1:%[5]d"]
  network_interface = "lo"
  options {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }
}
acl { enabled = true }
`, filepath.Join(node.dir, "data"), filepath.Join(node.dir, "plugins"), pool, strings.TrimPrefix(node.addr, "127.0.0.1:"), b.agent.rpc))
	node.start(b.T, path)
	b.Cleanup(b.cleanUp) // before the node's end, which ends no job
	return node, pool
}

// start runs the client; again after its end.
func (a *agent) start(t *testing.T, path string) {
	t.Helper()
	a.run(t, path, "agent", "-config", filepath.Join(a.dir, "nomad.hcl"), "-config", filepath.Join(a.dir, "plugin.hcl"))
}

// nodeGone: what a drain and the loss of a node do to a screen are statuses. Neither makes
// the next plan touch anything, and the screen comes back by itself with its node.
func nodeGone(b *bench) {
	node, pool := b.secondNode("29000-29009")
	id := b.nodeID(pool)
	b.config(strings.Replace(desktopOf(b, "800x600"), `isolation              = "host"`, `isolation = "host"`+"\n  node_pool = \""+pool+"\"", 1))
	b.settle()
	job := "botscreen-" + b.name("desk")
	b.has(deskAddress, "node_name", pool)
	status := func(want ...string) {
		b.Helper()
		b.empty()
		b.apply("-refresh-only")
		if got := fmt.Sprint(b.state()[deskAddress]["status"]); !strings.Contains(strings.Join(want, " "), got) {
			b.Errorf("status %q, want one of %v", got, want)
		}
	}
	back := func(allocations int) {
		b.Helper()
		b.allocs(job, func(all []*api.AllocationListStub) bool {
			return len(all) == allocations && ready(newest(all))
		})
		status("running")
	}

	nodes := b.agent.api.Nodes()
	if _, err := nodes.UpdateDrain(id, &api.DrainSpec{Deadline: time.Minute}, false, nil); err != nil {
		b.Fatal(err)
	}
	b.allocs(job, func(all []*api.AllocationListStub) bool {
		return running(all) == 0 && newest(all).ClientStatus == "complete"
	})
	status("stopped", "pending")
	b.has(deskAddress, "desired_state", "running")
	if _, err := nodes.UpdateDrain(id, nil, true, nil); err != nil {
		b.Fatal(err)
	}
	back(2)

	if err := syscall.Kill(node.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	<-node.done
	b.allocs(job, func(all []*api.AllocationListStub) bool { return running(all) == 0 })
	status("lost")
	nomad, err := exec.LookPath("nomad")
	if err != nil {
		b.Fatal(err)
	}
	node.start(b.T, nomad)
	back(3)
	b.destroy()
	b.ended(node, b.name("desk"))
}

// nodeID waits for the ready node of a pool.
func (b *bench) nodeID(pool string) (id string) {
	b.Helper()
	eventually(b.T, "a ready node of "+pool, func() bool {
		all, _, err := b.agent.api.Nodes().List(nil)
		for _, n := range all {
			if d := n.Drivers["botscreen"]; n.NodePool == pool && n.Status == "ready" && d != nil && d.Healthy {
				id = n.ID
			}
		}
		return err == nil && id != ""
	})
	return id
}

// mutualAgent: an agent of Nomad's own that wants client certificates.
func mutualAgent(b *bench) {
	nomad, err := exec.LookPath("nomad")
	if err != nil {
		b.Skip("nomad is not on PATH")
	}
	ca := newAuthority(b.T)
	soon := time.Now().Add(time.Hour)
	cert, key := ca.leaf("", soon)
	client, clientKey := ca.leaf("client", soon)
	a := prepare(b.T, "nomad", "29010-29019")
	for name, text := range map[string]string{"ca.pem": ca.pem, "cert.pem": cert, "key.pem": key} {
		write(b.T, filepath.Join(a.dir, name), text)
	}
	for name, text := range map[string]string{"ca.pem": ca.pem, "client.pem": client, "client.key": clientKey} {
		write(b.T, filepath.Join(b.dir, name), text)
	}
	http, rpc, serf := freePort(b.T), freePort(b.T), freePort(b.T)
	a.addr = fmt.Sprintf("127.0.0.1:%d", http)
	write(b.T, filepath.Join(a.dir, "nomad.hcl"), fmt.Sprintf(`
data_dir  = %[1]q
bind_addr = "127.0.0.1"
ports {
  http = %[2]d
  rpc  = %[3]d
  serf = %[4]d
}
advertise {
  http = "127.0.0.1:%[2]d"
  rpc  = "127.0.0.1:%[3]d"
  serf = "127.0.0.1:%[4]d"
}
server {
  enabled          = true
  bootstrap_expect = 1
}
tls {
  http                = true
  ca_file             = "%[5]s/ca.pem"
  cert_file           = "%[5]s/cert.pem"
  key_file            = "%[5]s/key.pem"
  verify_https_client = true
}
`, filepath.Join(a.dir, "data"), http, rpc, serf, a.dir))
	a.api, err = api.NewClient(&api.Config{Address: "https://" + a.addr, TLSConfig: &api.TLSConfig{CACertPEM: []byte(ca.pem), ClientCertPEM: []byte(client), ClientKeyPEM: []byte(clientKey)}})
	if err != nil {
		b.Fatal(err)
	}
	a.run(b.T, nomad, "agent", "-config", filepath.Join(a.dir, "nomad.hcl"))
	eventually(b.T, "a leader", func() bool { leader, err := a.api.Status().Leader(); return err == nil && leader != "" })
	b.env = []string{"NOMAD_TOKEN="}
	all := []string{`ca_file = "ca.pem"`, `cert_file = "client.pem"`, `key_file = "client.key"`}
	b.config(at("https://"+a.addr, all...) + profileOf())
	b.settle()
	b.config(at("https://"+a.addr, all[:1]...) + profileOf())
	b.fails(b.run("plan", "-no-color"), "is not trusted", "cert_file and key_file", "State was not changed.")
	b.config(at("https://"+a.addr) + profileOf())
	b.fails(b.run("plan", "-no-color"), "is not trusted", "ca_file")
	b.config(at("https://"+a.addr, all...) + profileOf())
	b.destroy()
}
