// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-DOC one-desktop", f: exampleOneDesktop, desktop: true},
	row{id: "T-DOC team", f: exampleTeam},
	row{id: "T-DOC lab", f: exampleLab, desktop: true},
	row{id: "T-DOC fleet", f: exampleFleet},
	row{id: "T-UPG-1", f: upgradeFromMirror},
	row{id: "T-UPG-2", f: oldState},
)

// example copies one of the examples into the test's directory, with its names made this
// test's own.
func (b *bench) example(name string) {
	b.Helper()
	from := filepath.Join("../../examples/terraform", name)
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(b.dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		own := strings.NewReplacer(
			`provider "botscreen" {`, fmt.Sprintf("provider \"botscreen\" {\n  variable_prefix = %q\n  ", b.prefix),
			`provider "botscreen" {}`, fmt.Sprintf("provider \"botscreen\" {\n  variable_prefix = %q\n}", b.prefix),
			`= "scout"`, fmt.Sprintf("= %q", b.name("scout")), `= "plain"`, fmt.Sprintf("= %q", b.name("plain")),
			`scout  =`, b.name("scout")+" =", `clerk  =`, b.name("clerk")+" =", `tester =`, b.name("tester")+" =",
			`["clerk", "scout", "tester"]`, fmt.Sprintf(`[%q, %q]`, b.name("clerk"), b.name("scout")),
			`memory    = 1024`, "memory    = 300\n  min_free_memory_mb = 64\n  start_timeout = \"60s\"",
			`min_free_memory_mb = 512`, "min_free_memory_mb = 64\n  start_timeout = \"60s\"",
		).Replace(string(text))
		return os.WriteFile(to, []byte(own), 0o600)
	})
	if err != nil {
		b.Fatal(err)
	}
}

func exampleOneDesktop(b *bench) {
	b.example("one-desktop")
	b.must("validate", "-no-color")
	b.settle()
	b.destroy()
}

func exampleTeam(b *bench) {
	d := newDepot(b)
	d.push("team/desk:1.4")
	b.example("team")
	args := []string{"-var", "image=" + d.host + "/team/desk:1.4", "-var", "desired_state=stopped"}
	b.must("validate", "-no-color")
	b.settle(args...)
	b.has(`botscreen_screen.agent["`+b.name("clerk")+`"]`, "status", "stopped")
	b.must(append([]string{"destroy", "-no-color", "-auto-approve"}, args...)...)
}

func exampleLab(b *bench) {
	b.example("lab")
	b.must("validate", "-no-color")
	b.settle()
	b.destroy()
}

func exampleFleet(b *bench) {
	b.mirror() // a module has to be installed, which asks for the providers as well
	b.example("fleet")
	b.must("init", "-no-color")
	b.settle()
	if n := len(b.jobs()); n != 3 {
		b.Errorf("%d jobs", n)
	}
	b.destroy()
}

func (b *bench) jobs() []string {
	b.Helper()
	all, _, err := b.agent.api.Jobs().ListOptions(&api.JobListOptions{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, j := range all {
		if strings.Contains(j.ID, b.prefix) {
			out = append(out, j.ID)
		}
	}
	return out
}

// mirror has the CLI install the provider from a directory, as a release.
func (b *bench) mirror() {
	b.Helper()
	dir := b.TempDir()
	program := binary(b.T, "terraform-provider-botscreen")
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		place := filepath.Join(dir, host, "botscreen/botscreen/0.1.0", runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(place, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(place, "terraform-provider-botscreen_v0.1.0")); err != nil {
			b.Fatal(err)
		}
	}
	write(b.T, filepath.Join(b.dir, "cli.rc"), fmt.Sprintf(`provider_installation {
  filesystem_mirror {
    path    = %q
    include = ["registry.terraform.io/botscreen/*", "registry.opentofu.org/botscreen/*"]
  }
  direct {
    exclude = ["registry.terraform.io/botscreen/*", "registry.opentofu.org/botscreen/*"]
  }
}
`, dir))
}

// upgradeFromMirror: what a release made, the working tree plans and applies on. Before
// the first release the mirror holds this version: the way is tested, the difference is
// none yet.
func upgradeFromMirror(b *bench) {
	dev, err := os.ReadFile(filepath.Join(b.dir, "cli.rc"))
	if err != nil {
		b.Fatal(err)
	}
	b.mirror()
	conf := profileOf(`idle_stop = "45m"`) + fmt.Sprintf(placements, "") + `
resource "botscreen_screen" "s" {
  name          = "PREFIX"
  profile       = botscreen_profile.desk.ref
  placement     = botscreen_placement.p.ref
  desired_state = "stopped"
}
`
	b.config(conf)
	b.must("init", "-no-color")
	b.settle()
	write(b.T, filepath.Join(b.dir, "cli.rc"), string(dev))
	b.empty()
	b.apply()
	b.destroy()
}

// oldState: a state of the first schema is read without asking anybody, also by a plan.
func oldState(b *bench) {
	b.config(profileOf() + fmt.Sprintf(placements, "") + `
resource "botscreen_screen" "s" {
  name          = "PREFIX"
  profile       = botscreen_profile.desk.ref
  placement     = botscreen_placement.p.ref
  desired_state = "stopped"
}
`)
	b.settle()
	text, err := os.ReadFile(filepath.Join(b.dir, "terraform.tfstate"))
	if err != nil {
		b.Fatal(err)
	}
	if n := strings.Count(string(text), `"schema_version": 0`); n != 3 {
		b.Fatalf("%d resources of schema version 0; a new version needs an upgrade and its own fixture", n)
	}
	b.proxy.counts()
	b.env = append(b.env, "NOMAD_ADDR=http://127.0.0.1:1")
	b.empty("-refresh=false")
	if n := len(b.proxy.counts()); n != 0 {
		b.Errorf("%d kinds of requests", n)
	}
	b.env = nil
	b.destroy()
}
