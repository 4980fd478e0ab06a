// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-PRO-1 profile", f: profileLife},
	row{id: "T-PRO-2 placement", f: placementLife},
	row{id: "T-DEF", f: defaults},
	row{id: "T-ID", f: identity, needs: identities},
	row{id: "T-DRIFT-1", f: recordDrift},
	row{id: "T-DRIFT-3 / TFM-01", f: equalSpellings},
	row{id: "T-GONE-1 / TFM-11", f: recordGone},
	row{id: "T-UPG-3", f: newerRecord},
)

const deskProfile = `
resource "botscreen_profile" "desk" {
  name = "desk"
  %s
}
`

func profileOf(lines ...string) string {
	return fmt.Sprintf(deskProfile, strings.Join(lines, "\n  "))
}

// record reads a record of this test as the API gives it.
func (b *bench) record(path string) *api.Variable {
	b.Helper()
	v, _, err := b.agent.api.Variables().Peek(b.prefix+"/"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// rewrite changes fields of a record as another program would.
func (b *bench) rewrite(path string, fields map[string]any) {
	b.Helper()
	v := b.record(path)
	if v == nil {
		b.Fatalf("no record %s", path)
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(v.Items["spec"]), &spec); err != nil {
		b.Fatal(err)
	}
	for key, value := range fields {
		spec[key] = value
	}
	text, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	v.Items["spec"], v.Items["changed_by"] = string(text), "cli:ada"
	if _, _, err := b.agent.api.Variables().Update(v, nil); err != nil {
		b.Fatal(err)
	}
}

func profileLife(b *bench) {
	b.config(profileOf())
	b.settle()
	b.has("botscreen_profile.desk", "id", "desk@default")
	all := []string{
		`geometry = "1024x768"`, `depth = 16`, `dpi = 120`, `min_free_memory_mb = 64`, `start_timeout = "90s"`,
		`keyboard_layout = "de(nodeadkeys),fr"`, `look = "full"`, `glx = true`,
		`idle_stop = "45m"`, `idle_action = "exit"`, `watch = "holder"`, `thumbnails = "off"`, `clipboard = "both"`, `takeover = "clean"`, `away_limit = "90m"`, `consent = true`, `max_geometry = "1920x1080"`, `cpu = 500`, `memory = 1024`, `memory_max = 2048`,
		`env = { LANG_HINT = "de" }`, `secret_env = { KEY = "agents/openai#api_key" }`, `labels = { lane = "blue" }`,
		`viewer = { static_port = 8443, host_network = "people", tls_cert = "desk/tls#cert", tls_key = "desk/tls#key" }`,
		`agent_socket = { group = "bots", uids = [1000, 1001] }`, `docker = { network_mode = "bridge", labels = { team = "x" } }`, `apptainer = { writable = true, tmpfs_mb = 64 }`,
		`browser = { args = ["--lang=de"], start_url = "https://example.org/" }`,
		`description = "the desk"`, `force_destroy = true`,
	}
	for i := range all { // each attribute by itself: an update in place, of nothing else
		b.config(profileOf(all[:i+1]...))
		plan, _ := b.plan()
		b.does(plan, "botscreen_profile.desk", "update")
		name, _, _ := strings.Cut(all[i], " ")
		changed := []string{name, "ref"}
		if name == "labels" || name == "description" || name == "force_destroy" {
			changed = changed[:1] // no screen depends on them
		}
		b.changesOnly(plan["botscreen_profile.desk"], changed...)
		b.must("apply", "-no-color", "plan")
	}
	b.empty()
	if text := b.record("profile/desk").Items["spec"]; !strings.Contains(text, `"geometry":"1024x768"`) || !strings.Contains(text, `"start_timeout":"1m30s"`) {
		b.Errorf("record: %s", text)
	}
	b.importsBack("botscreen_profile.desk", "desk")
	b.config(strings.Replace(profileOf(all...), `name = "desk"`, `name = "other"`, 1))
	plan, _ := b.plan()
	b.does(plan, "botscreen_profile.desk", "delete,create")
	b.settle()
	b.destroy()
	if b.record("profile/other") != nil || b.record("profile/desk") != nil {
		b.Error("destroy left a record")
	}
}

// importsBack forgets a resource and imports it in both ways, with an empty plan after.
func (b *bench) importsBack(address, id string) {
	b.Helper()
	for _, words := range []string{id, id + "@default"} {
		b.must("state", "rm", address)
		b.must("import", "-no-color", address, words)
		b.emptyButConfig(address)
	}
	b.must("state", "rm", address)
	path := filepath.Join(b.dir, "import.tf")
	write(b.T, path, fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", address, id))
	out := b.apply()
	b.says(out, "1 imported")
	if err := os.Remove(path); err != nil {
		b.Fatal(err)
	}
	b.empty()
}

// emptyButConfig applies what an import cannot know, attributes that are in no record, and
// expects that nothing else was to do.
func (b *bench) emptyButConfig(address string) {
	b.Helper()
	plan, _ := b.plan()
	c := plan[address]
	for key, after := range c.After {
		stateOnly := key == "force_destroy" || key == "start_timeout" || key == "away_limit" || key == "idle_stop" || key == "timeouts"
		if fmt.Sprint(c.Before[key]) != fmt.Sprint(after) && !stateOnly {
			b.Errorf("after the import %s: %v → %v", key, c.Before[key], after)
		}
	}
}

const placements = `
resource "botscreen_placement" "p" {
  name = "p"
  %s
}
`

func placementLife(b *bench) {
	conf := func(lines ...string) string { return fmt.Sprintf(placements, strings.Join(lines, "\n  ")) }
	b.config(conf())
	b.settle()
	all := []string{
		`isolation_order = ["apptainer", "docker"]`, `node_pool = "desktops"`, `node_classes = ["gpu", "cpu-large"]`,
		`datacenters = ["fra1", "ams1"]`, `priority = 70`, `description = "where"`,
		`constraints = [{ attribute = "$${attr.kernel.version}", operator = "version", value = ">= 5.15" }, { attribute = "$${attr.x}", operator = "is_set" }]`,
	}
	for i := range all {
		b.config(conf(all[:i+1]...))
		plan, _ := b.plan()
		b.does(plan, "botscreen_placement.p", "update")
		name, _, _ := strings.Cut(all[i], " ")
		changed := []string{name, "ref"}
		if name == "description" {
			changed = changed[:1]
		}
		b.changesOnly(plan["botscreen_placement.p"], changed...)
		b.must("apply", "-no-color", "plan")
	}
	b.empty()
	b.importsBack("botscreen_placement.p", "p")
	b.config(conf(`isolation = "host"`, `allow_unsandboxed_host = true`))
	b.settle()
	b.destroy()
}

func defaults(b *bench) {
	b.config(profileOf() + fmt.Sprintf(placements, "") + `
resource "botscreen_screen" "s" {
  name    = "desk"
  profile = botscreen_profile.desk.ref
}
`)
	b.env = append(b.env, "BOTSCREEN_NAMESPACE=default")
	plan, _ := b.plan()
	for address, want := range map[string]map[string]any{
		"botscreen_profile.desk": {
			"id": "desk@default", "namespace": "default", "geometry": "1440x900", "depth": 24, "dpi": 96, "min_free_memory_mb": 1536, "keyboard_layout": "us",
			"look": "lean", "glx": false, "cpu": 1000, "memory": 2048, "force_destroy": false,
		},
		"botscreen_placement.p": {
			"id": "p@default", "isolation": "auto", "isolation_order": []any{"docker", "apptainer"}, "allow_unsandboxed_host": false, "node_pool": "default",
			"datacenters": []any{"*"}, "priority": 50, "force_destroy": false,
		},
		"botscreen_screen.s": {
			"job_id": "botscreen-desk", "desired_state": "running", "run_policy": "on_demand", "wait_for": "running",
			"purge_on_destroy": true, "force": false,
		},
	} {
		for key, value := range want {
			if got := plan[address].After[key]; fmt.Sprint(got) != fmt.Sprint(plain(value)) {
				b.Errorf("%s.%s is planned as %v, want %v", address, key, got, value)
			}
		}
	}
}

func identity(b *bench) {
	b.config(profileOf())
	b.settle()
	b.must("state", "rm", "botscreen_profile.desk")
	b.config(profileOf() + "import {\n  to = botscreen_profile.desk\n  identity = {\n    name = \"desk\"\n  }\n}\n")
	b.says(b.apply(), "1 imported")
	b.empty()
}

func recordDrift(b *bench) {
	b.config(profileOf(`geometry = "1024x768"`))
	b.settle()
	b.rewrite("profile/desk", map[string]any{"geometry": "640x480"})
	plan, _ := b.plan()
	b.does(plan, "botscreen_profile.desk", "update")
	b.changesOnly(plan["botscreen_profile.desk"], "geometry", "ref")
	if got := plan["botscreen_profile.desk"].Before["geometry"]; got != "640x480" {
		b.Errorf("the plan shows %v", got)
	}
	b.settle()
	if text := b.record("profile/desk").Items["spec"]; !strings.Contains(text, "1024x768") {
		b.Errorf("record: %s", text)
	}
}

// equalSpellings: what means the same is no change, from a user's hand or from a server's.
func equalSpellings(b *bench) {
	conf := func(timeout, datacenters string) string {
		return profileOf(`start_timeout = "`+timeout+`"`, `idle_stop = "1200s"`, `labels = { lane = "blue" }`, `env = { A = "--lang=en --user-agent=a b" }`) + `
resource "botscreen_placement" "a" {
  name        = "a"
  datacenters = ` + datacenters + `
  constraints = [
    { attribute = "$${attr.unique.hostname}", value = "node-1" },
  ]
}
`
	}
	b.config(conf("90s", `["dc2", "dc1"]`))
	b.settle()
	b.config(conf("1m30s", `["dc1", "dc2"]`))
	b.empty()
	v := b.record("profile/desk") // another program's JSON: other order, spaces, null
	v.Items["spec"] = `{ "look": "lean", "start_timeout": "90s", "idle_stop": "20m", "memory": 2048, "cpu": 1000, "dpi": 96, "depth": 24, "geometry": "1440x900",
	  "min_free_memory_mb": 1536, "keyboard_layout": "us", "labels": {"lane": "blue"}, "secret_env": null, "env": {"A": "--lang=en --user-agent=a b"} }`
	if _, _, err := b.agent.api.Variables().Update(v, nil); err != nil {
		b.Fatal(err)
	}
	b.empty("-refresh=true")
	if text := b.record("placement/a").Items["spec"]; !strings.Contains(text, `"${attr.unique.hostname}"`) {
		b.Errorf("record: %s", text)
	}
	b.must("state", "rm", "botscreen_placement.a")
	b.must("import", "-no-color", "botscreen_placement.a", "a")
	b.empty()
}

func recordGone(b *bench) {
	b.config(profileOf() + fmt.Sprintf(placements, ""))
	b.settle()
	client := b.agent.api
	for _, path := range []string{"/profile/desk", "/placement/p"} {
		if _, err := client.Variables().Delete(b.prefix+path, nil); err != nil {
			b.Fatal(err)
		}
	}
	plan, _ := b.plan()
	b.does(plan, "botscreen_profile.desk", "create")
	b.does(plan, "botscreen_placement.p", "create")
	b.destroy()
	b.settle()
	b.withoutIdentity() // as a build has left it that knew none
	if _, err := client.Variables().Delete(b.prefix+"/profile/desk", nil); err != nil {
		b.Fatal(err)
	}
	plan, _ = b.plan()
	b.does(plan, "botscreen_profile.desk", "create")
	b.does(plan, "botscreen_placement.p", "no-op")
	b.destroy()
}

// withoutIdentity takes every identity out of the state.
func (b *bench) withoutIdentity() {
	b.Helper()
	path := filepath.Join(b.dir, "terraform.tfstate")
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		b.Fatal(err)
	}
	for _, r := range state["resources"].([]any) {
		for _, one := range r.(map[string]any)["instances"].([]any) {
			delete(one.(map[string]any), "identity")
			delete(one.(map[string]any), "identity_schema_version")
		}
	}
	if text, err = json.Marshal(state); err != nil {
		b.Fatal(err)
	}
	write(b.T, path, string(text))
}

// newerRecord is written by a program that is newer than this one.
func newerRecord(b *bench) {
	b.config(profileOf())
	b.settle()
	v := b.record("profile/desk")
	v.Items["schema"] = "2"
	if _, _, err := b.agent.api.Variables().Update(v, nil); err != nil {
		b.Fatal(err)
	}
	b.fails(b.run("plan", "-no-color"), "This record was written by a newer version", "Nothing was overwritten", "Upgrade the provider")
	b.fails(b.tryApply("-refresh=false", "-replace=botscreen_profile.desk"), "was changed by someone else")
	if got := b.record("profile/desk"); got.Items["schema"] != "2" {
		b.Errorf("the record was overwritten: %v", got.Items)
	}
}
