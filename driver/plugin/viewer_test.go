// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/screen"
)

// X43: the viewer listener is where Nomad put the port, and an address that others can
// reach needs TLS before anything is started.
func TestX43ViewerAddress(t *testing.T) {
	const tls = "\n tls_cert = \"local/c\"\n tls_key = \"secrets/k\""
	for name, tc := range map[string]struct {
		tls  string
		port *driverpb.PortMapping
		want string // the address, or the fault
	}{
		"loopback":        {"", &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "127.0.0.1"}, "127.0.0.1:23000"},
		"loopback, v6":    {"", &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "::1"}, "[::1]:23000"},
		"mapped loopback": {"", &driverpb.PortMapping{Label: "web", Value: 1, HostIp: "::ffff:127.0.0.1"}, "[::ffff:127.0.0.1]:1"},
		"reachable, TLS":  {tls, &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "192.0.2.7"}, "192.0.2.7:23000"},
		"reachable":       {"", &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "192.0.2.7"}, "viewer.tls_cert: is required"},
		"everywhere":      {"", &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "0.0.0.0"}, "viewer.tls_cert: is required"},
		"everywhere, v6":  {"", &driverpb.PortMapping{Label: "web", Value: 23000, HostIp: "::"}, "viewer.tls_cert: is required"},
		"other label":     {tls, &driverpb.PortMapping{Label: "vnc", Value: 23000, HostIp: "127.0.0.1"}, `viewer.port: "web" is not the label`},
		"no address":      {tls, &driverpb.PortMapping{Label: "web", Value: 23000}, `viewer.port: "web" has no address`},
		"no port":         {tls, &driverpb.PortMapping{Label: "web", HostIp: "127.0.0.1"}, `viewer.port: "web" has no address`},
		"too high":        {tls, &driverpb.PortMapping{Label: "web", Value: 70000, HostIp: "127.0.0.1"}, `viewer.port: "web" has no address`},
	} {
		config, err := encode(t, jobSchema(), "profile = \"bot\"\nviewer {\n port = \"web\""+tc.tls+"\n}", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := taskRequest(&nomadplugin.TaskConfig{
			Id: "a/b/c", Name: "b", AllocDir: "/alloc", MsgpackDriverConfig: config,
			Resources: &driverpb.Resources{Ports: []*driverpb.PortMapping{tc.port}},
		})
		var faults screen.Faults
		switch {
		case err == nil && r.ViewerAddress.String() != tc.want:
			t.Errorf("%s: at %s, want %s", name, r.ViewerAddress, tc.want)
		case err != nil && (!errors.As(err, &faults) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}
