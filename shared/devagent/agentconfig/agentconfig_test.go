// SPDX-License-Identifier: MPL-2.0

package agentconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/devagent/drivers"
)

func TestParse(t *testing.T) {
	c, err := Parse("agent.hcl", []byte(`
data_dir   = "/var/lib/nomad"
plugin_dir = "/opt/plugins"
bind_addr  = "127.0.0.1"
name       = "n"
datacenter = "dc2"
region     = "global"
log_level  = "debug"

ports {
  http = 5646
}
server {
  enabled = true
}
client {
  enabled    = true
  node_class = "big"
  meta {
    rack = "r1"
  }
  options = {
    "driver.denylist" = "docker, qemu"
  }
  reserved {
    memory = 512
  }
}
plugin "nomad-driver-botscreen" {
  args = ["-v"]
  config {
    allow_unsandboxed_host = true
    isolation_order        = ["docker"]
    exec {
      shell = false
    }
    labels = { a = "b" }
  }
}
plugin "other" {}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		DataDir: "/var/lib/nomad", PluginDir: "/opt/plugins", BindAddr: "127.0.0.1", Name: "n", Datacenter: "dc2", LogLevel: "debug",
		HTTPPort: 5646, NodeClass: "big", Meta: map[string]string{"rack": "r1"}, DeniedDrivers: []string{"docker", "qemu"}, ReservedMemoryMB: 512,
		Plugins: []drivers.Block{
			{Name: "nomad-driver-botscreen", Args: []string{"-v"}, Config: map[string]any{
				"allow_unsandboxed_host": true, "isolation_order": []any{"docker"},
				"exec": []map[string]any{{"shell": false}}, "labels": []map[string]any{{"a": "b"}},
			}},
			{Name: "other"},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// What is not known is refused by name and place, all at once.
func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"acl {\n}\n":                                 `x.hcl:1,1-4: Unsupported agent configuration; The embedded agent does not know the block "acl"`,
		"a = 1\n":                                    `x.hcl:1,1-2: Unsupported agent configuration; The embedded agent does not know "a"`,
		"client {\n  alloc_dir = \"x\"\n}":           `x.hcl:2,3-12: Unsupported agent configuration; The embedded agent does not know "alloc_dir" in client.`,
		"client {\n  enabled = false\n}":             `enabled can only be true`,
		"region = \"eu\"":                            `region can only be global`,
		"plugin {\n}\n":                              `A plugin block has one label`,
		"plugin \"a\" {}\nplugin \"a\" {}":           `Plugin "a" is already configured`,
		"ports {\n  http = \"many\"\n}":              `http: a number is required`,
		"name = null":                                `name: a value is null`,
		"name = x":                                   `Variables not allowed`,
		"client {\n options = { \"x\" = 1 }\n}":      `does not know the client option "x"`,
		"plugin \"a\" {\n  config {\n  x = y\n }\n}": `The configuration of plugin "a"`,
		"name = \"":                                  `x.hcl:1,`,
	} {
		if _, err := Parse("x.hcl", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("x.hcl", []byte("a = 1\nb = 2\n")); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not all faults at once: %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is fine")
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("plugin \"a\" {\n config {\n x = [1, {a = 2}]\n }\n}\nclient {\n meta {\n a = 1\n }\n}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("x", src)
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v and error %v", c, err)
		}
	})
}
