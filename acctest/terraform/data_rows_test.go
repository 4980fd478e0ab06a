// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-DATA", f: dataSources, desktop: true},
	row{id: "T-DATA missing", f: dataMissing},
	row{id: "T-FUN", f: functions},
	row{id: "T-EPH-1", f: ticketUsed, desktop: true},
	row{id: "T-EPH-2", f: ticketsRevoked, desktop: true},
	row{id: "T-MOV", f: movedJob, desktop: true},
)

func dataSources(b *bench) {
	b.config(desktopOf(b, "800x600") + `
data "botscreen_profile" "desk" {
  name = botscreen_profile.desk.name
}
data "botscreen_placement" "host" {
  name = botscreen_placement.host.name
}
data "botscreen_screen" "desk" {
  name       = botscreen_screen.desk.name
  depends_on = [botscreen_screen.desk]
}
data "botscreen_screens" "all" {
  profile    = botscreen_profile.desk.name
  depends_on = [botscreen_screen.desk]
}
data "botscreen_nodes" "all" {
  node_pool = "default"
}
data "botscreen_nodes" "apptainer" {
  isolation = "apptainer"
}
data "botscreen_default_images" "docker" {
  kind = "docker"
}
data "botscreen_placement_check" "host" {
  placement = botscreen_placement.host.ref
  profile   = botscreen_profile.desk.ref
}
resource "botscreen_placement" "none" {
  name            = "none"
  isolation_order = ["apptainer"]
}
data "botscreen_placement_check" "none" {
  placement = botscreen_placement.none.name
}
check "somewhere" {
  assert {
    condition     = data.botscreen_placement_check.none.can_host
    error_message = data.botscreen_placement_check.none.refusal
  }
}
`)
	o := b.apply()
	b.says(o, "Check block assertion failed", "No node can host this desktop in a sandbox")
	b.empty()
	s := b.state()
	for address, want := range map[string]map[string]any{
		"data.botscreen_profile.desk":          {"geometry": "800x600", "memory": 300, "ref": s["botscreen_profile.desk"]["ref"]},
		"data.botscreen_placement.host":        {"isolation": "host", "allow_unsandboxed_host": true},
		"data.botscreen_screen.desk":           {"status": "running", "isolation": "host", "alloc_id": s[deskAddress]["alloc_id"], "lease": s[deskAddress]["lease"]},
		"data.botscreen_default_images.docker": {"source": "built_in", "reference": "ghcr.io/botscreen/botscreen-desktop:stable", "digest": nil},
		"data.botscreen_placement_check.host":  {"can_host": true, "isolation": "host", "refusal": "", "opt_in": nil},
		"data.botscreen_placement_check.none":  {"can_host": false, "opt_in": "allow_unsandboxed_host", "eligible_nodes": []any{}},
		"data.botscreen_nodes.apptainer":       {"nodes": []any{}},
	} {
		for key, value := range want {
			if got := s[address][key]; fmt.Sprint(plain(got)) != fmt.Sprint(plain(value)) {
				b.Errorf("%s.%s is %v, want %v", address, key, got, value)
			}
		}
	}
	screens, _ := s["data.botscreen_screens.all"]["screens"].([]any)
	if len(screens) != 1 || screens[0].(map[string]any)["status"] != "running" || screens[0].(map[string]any)["holder"] != "agent" {
		b.Errorf("screens: %v", screens)
	}
	nodes, _ := s["data.botscreen_nodes.all"]["nodes"].([]any)
	if len(nodes) != 1 || !strings.Contains(fmt.Sprint(nodes[0].(map[string]any)["isolations"]), "host") || nodes[0].(map[string]any)["healthy"] != true {
		b.Errorf("nodes: %v", nodes)
	}
	b.destroy()
}

func dataMissing(b *bench) {
	for kind, word := range map[string]string{"profile": "profile", "placement": "placement", "sandbox_image": "sandbox image", "screen": "screen"} {
		b.config(fmt.Sprintf("data \"botscreen_%s\" \"x\" {\n  name = \"nobody\"\n}\n", kind))
		b.fails(b.run("plan", "-no-color"), fmt.Sprintf("No %s \"nobody\" in namespace \"default\"", word))
	}
	b.config(`
resource "terraform_data" "cluster" {
  input = "` + b.proxy.URL + `"
}
provider "botscreen" {
  address = terraform_data.cluster.output
}
data "botscreen_profile" "x" {
  name = "nobody"
}
`)
	b.fails(b.run("plan", "-no-color"), "The Nomad address is not known yet", "Apply the cluster first")
}

func functions(b *bench) {
	digest := "sha256:" + strings.Repeat("a", 64)
	b.config(profileOf(`geometry = "1024x768"`) + fmt.Sprintf(`
output "tag" {
  value = provider::botscreen::image_ref("registry.example:5000/team/desk:1.4@%[1]s")
}
output "bare" {
  value = provider::botscreen::image_ref("desk").pinned
}
output "ref" {
  value = provider::botscreen::record_ref("profile", "desk", { geometry = "1024x768" })
}
output "whole" {
  value = provider::botscreen::record_ref("profile", "desk", botscreen_profile.desk)
}
output "actual" {
  value = botscreen_profile.desk.ref
}
`, digest))
	b.settle()
	var doc map[string]struct {
		Value any `json:"value"`
	}
	b.outputs(&doc)
	want := map[string]any{"registry": "registry.example:5000", "repository": "team/desk", "tag": "1.4", "digest": digest, "pinned": true}
	if fmt.Sprint(doc["tag"].Value) != fmt.Sprint(want) || doc["bare"].Value != false {
		b.Errorf("image_ref: %v, %v", doc["tag"].Value, doc["bare"].Value)
	}
	if doc["ref"].Value != doc["actual"].Value || doc["whole"].Value != doc["actual"].Value {
		b.Errorf("record_ref: %v and %v, want %v", doc["ref"].Value, doc["whole"].Value, doc["actual"].Value)
	}
	for _, bad := range []string{`image_ref("")`, `image_ref("Desk:1.4")`, `record_ref("screen", "x", {})`, `record_ref("profile", "..", {})`, `record_ref("profile", "x", "text")`} {
		b.config("output \"x\" {\n  value = provider::botscreen::" + bad + "\n}\n")
		b.fails(b.run("plan", "-no-color"), "Invalid function argument")
	}
}

func (b *bench) outputs(into any) {
	b.Helper()
	var doc struct {
		Values struct {
			Outputs any `json:"outputs"`
		} `json:"values"`
	}
	doc.Values.Outputs = into
	b.show(&doc)
}

const smoke = `
ephemeral "botscreen_viewer_ticket" "t" {
  screen = botscreen_screen.desk.id
}
resource "terraform_data" "smoke" {
  triggers_replace = [botscreen_screen.desk.job_version]
  provisioner "local-exec" {
    command     = "printf '%s' \"$TICKET\" > ticket.txt"
    environment = { TICKET = ephemeral.botscreen_viewer_ticket.t.ticket }
  }
}
`

// ticketUsed: the value reaches what it is for, and neither plan nor state.
func ticketUsed(b *bench) {
	b.config(desktopOf(b, "800x600") + smoke)
	b.apply()
	text, err := os.ReadFile(filepath.Join(b.dir, "ticket.txt"))
	if err != nil || len(text) < 20 {
		b.Fatalf("ticket %q, %v", text, err)
	}
	b.plan()
	for _, name := range []string{"terraform.tfstate", "plan"} {
		kept, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			b.Fatal(err)
		}
		if strings.Contains(string(kept), string(text)) {
			b.Errorf("the ticket is in %s", name)
		}
	}
	b.destroy()
}

// ticketsRevoked: each open has its close, in plans as in applies.
func ticketsRevoked(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	log := filepath.Join(b.dir, "trace.log")
	b.config(desktopOf(b, "800x600") + smoke)
	for _, args := range [][]string{{"plan", "-no-color"}, {"apply", "-no-color", "-auto-approve"}, {"plan", "-no-color"}} {
		b.env = append(b.env, "TF_LOG_PROVIDER=TRACE", "TF_LOG_PATH="+log)
		_ = os.Remove(log)
		o := b.must(args...)
		if strings.Contains(o.text, "was not revoked") {
			b.Errorf("%s", o.raw)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			b.Fatal(err)
		}
		opened, closed := strings.Count(string(text), "Called provider defined EphemeralResource Open"), strings.Count(string(text), "Called provider defined EphemeralResource Close")
		if opened == 0 || opened != closed {
			b.Errorf("%v: %d opened, %d closed", args, opened, closed)
		}
	}
	b.env = nil
	b.config(`
ephemeral "botscreen_viewer_ticket" "t" {
  screen = "nobody-PREFIX"
}
`)
	b.fails(b.run("plan", "-no-color"), "No running screen")
	b.config(desktopOf(b, "800x600"))
	b.destroy()
}

// movedJob takes a desktop over that was a nomad_job: nothing is destroyed.
func movedJob(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.apply("-target=botscreen_profile.desk", "-target=botscreen_placement.host")
	id := b.name("old")
	job := fmt.Sprintf(`job %[1]q {
  group "g" {
    task "t" {
      driver = "botscreen"
      config {
        profile            = %[2]q
        isolation          = "host"
        geometry           = "800x600"
        min_free_memory_mb = 64
        start_timeout      = "60s"
      }
      resources {
        cpu    = 50
        memory = 300
      }
    }
  }
}`, id, b.name("desk"))
	parsed, err := b.agent.api.Jobs().ParseHCL(job, true)
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := b.agent.api.Jobs().Register(parsed, nil); err != nil {
		b.Fatal(err)
	}
	b.allocs(id, func(all []*api.AllocationListStub) bool { return running(all) == 1 })
	state, err := os.ReadFile(filepath.Join(b.dir, "terraform.tfstate"))
	if err != nil {
		b.Fatal(err)
	}
	old := fmt.Sprintf(`"resources": [
    {
      "mode": "managed", "type": "nomad_job", "name": "old",
      "provider": "provider[\"%s/hashicorp/nomad\"]",
      "instances": [{"schema_version": 1, "attributes": {"id": %[2]q, "name": %[2]q, "namespace": "default", "jobspec": "job"}}]
    },`, map[string]string{"terraform": "registry.terraform.io", "tofu": "registry.opentofu.org"}[b.cli.name], id)
	write(b.T, filepath.Join(b.dir, "terraform.tfstate"), strings.Replace(string(state), `"resources": [`, old, 1))
	b.config(strings.ReplaceAll(desktopOf(b, "800x600", fmt.Sprintf("job_id = %q", id)), fmt.Sprintf("  name      = %q", b.name("desk")), fmt.Sprintf("  name      = %q", id)) + `
moved {
  from = nomad_job.old
  to   = botscreen_screen.desk
}
`)
	b.standIn()
	plan, _ := b.plan()
	b.does(plan, deskAddress, "update")
	b.settle()
	if job := b.job(id); job.Meta["botscreen_name"] != id {
		b.Errorf("meta %v", job.Meta)
	}
	b.destroy()
}

// standIn makes the CLI find some provider under the name of the one that the state was
// written by, which is not asked for anything: the target takes the state over.
func (b *bench) standIn() {
	b.Helper()
	dir := b.TempDir()
	program, err := os.ReadFile(binary(b.T, "terraform-provider-botscreen"))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "terraform-provider-nomad"), program, 0o755); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.dir, "cli.rc")
	rc, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	both := fmt.Sprintf("dev_overrides {\n    \"registry.terraform.io/hashicorp/nomad\" = %[1]q\n    \"registry.opentofu.org/hashicorp/nomad\" = %[1]q\n", dir)
	write(b.T, path, strings.Replace(string(rc), "dev_overrides {\n", both, 1))
}
