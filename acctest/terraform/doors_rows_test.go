// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/nomad/api"
)

var _ = add(row{id: "T-EPH-3 / T-VIEW", f: viewerListener, desktop: true})

// viewerListener: a profile gives its screens a listener behind a certificate that only the
// task itself reads; a ticket of a run opens one view there, once, and none after the run.
func viewerListener(b *bench) {
	path := "nomad/jobs/botscreen-" + b.name("desk") // what a task's own identity may read
	ca := newAuthority(b.T)
	cert, key := ca.leaf("", time.Now().Add(time.Hour))
	v := &api.Variable{Path: path, Items: api.VariableItems{"cert": cert, "key": key}}
	if _, _, err := b.agent.api.Variables().Create(v, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = b.agent.api.Variables().Delete(path, nil) })
	listens := "viewer = { tls_cert = \"" + path + "#cert\", tls_key = \"" + path + "#key\" }\n  agent_socket = { mode = \"0600\" }\n  browser = { enabled = false }\n  cpu "
	with := strings.Replace(desktopOf(b, "800x600"), "cpu ", listens, 1) + `
data "botscreen_screen" "desk" {
  name       = botscreen_screen.desk.name
  depends_on = [botscreen_screen.desk]
}
`
	b.config(with)
	b.settle()
	address, _ := b.state()[deskAddress]["viewer_url"].(string)
	if !strings.HasPrefix(address, "https://127.0.0.1:") || b.state()["data.botscreen_screen.desk"]["viewer_url"] != address {
		b.Fatalf("viewer_url %q, and %q", address, b.state()["data.botscreen_screen.desk"]["viewer_url"])
	}
	for _, secret := range []string{cert, key} {
		if b.holds("terraform.tfstate", strings.Split(secret, "\n")[1]) {
			b.Error("the state has the PEM")
		}
	}
	s := b.serve()
	ticket, end := s.openTicket(b.name("desk"))
	if s.opened["url"] != address+"/#ticket="+ticket {
		b.Errorf("url %q", strings.ReplaceAll(s.opened["url"], ticket, "TICKET"))
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	if code := b.redeem(address, ticket, pool); code != 0 {
		b.Errorf("the ticket: %d", code)
	}
	if code := b.redeem(address, ticket, pool); code != 4401 {
		b.Errorf("the ticket, used twice: %d", code)
	}
	end()
	unused, end := s.openTicket(b.name("desk"))
	end()
	if code := b.redeem(address, unused, pool); code != 4401 {
		b.Errorf("a ticket after its run: %d", code)
	}
	revoked, end := s.openTicket(b.name("desk"))
	s.works("botscreen_tickets_revoke", map[string]any{"screen": b.name("desk")}, "have ended")
	if code := b.redeem(address, revoked, pool); code != 4401 {
		b.Errorf("a revoked ticket: %d", code)
	}
	end()
	b.config(desktopOf(b, "800x600")) // no listener any more
	b.settle()
	b.has(deskAddress, "viewer_url", nil)
	b.destroy()
}

// redeem shows a ticket at a listener and gives the code it closes with; 0: the view opened.
func (b *bench) redeem(address, ticket string, roots *x509.CertPool) int {
	b.Helper()
	conn, _, err := websocket.Dial(b.Context(), strings.Replace(address, "http", "ws", 1)+"/view", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {address}}, Subprotocols: []string{"botscreen", "ticket." + ticket},
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
	})
	if err != nil {
		b.Fatal(strings.ReplaceAll(err.Error(), ticket, "TICKET"))
	}
	defer func() { _ = conn.CloseNow() }()
	if _, _, err := conn.Read(b.Context()); err != nil {
		return int(websocket.CloseStatus(err))
	}
	return 0
}

// holds says whether a file of the test has a text in it.
func (b *bench) holds(name, text string) bool {
	b.Helper()
	kept, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.Fatal(err)
	}
	return strings.Contains(string(kept), text)
}
