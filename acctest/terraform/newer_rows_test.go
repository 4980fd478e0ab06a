// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Rows of what only later CLIs ask for. Their server side runs everywhere.
var _ = add(
	row{id: "T-ACT server", f: actions, desktop: true},
	row{id: "T-LST server", f: lists},
	row{id: "T-ACT", f: triggeredActions, desktop: true, needs: actionBlocks},
	row{id: "T-LST", f: queried, needs: queries},
)

// triggeredActions is the example: an update of something else restarts the screen.
func triggeredActions(b *bench) {
	b.example("operate")
	b.must("validate", "-no-color")
	b.settle()
	const address = "botscreen_screen.scout"
	before := b.state()[address]["alloc_id"]
	b.says(b.apply("-var", "release=2"), "No ticket", "Restarting the desktop", "is ready")
	b.empty("-var", "release=2")
	b.apply("-refresh-only", "-var", "release=2")
	second := b.state()[address]["alloc_id"]
	if second == before {
		b.Error("the desktop is the same")
	}
	b.must("apply", "-no-color", "-auto-approve", "-var", "release=2", "-invoke", "action.botscreen_screen_restart.scout")
	b.apply("-refresh-only", "-var", "release=2")
	if b.state()[address]["alloc_id"] == second {
		b.Error("the desktop is the same after the action by hand")
	}
	b.destroy()
}

// queried finds what somebody else has made, and takes it over as the CLI wrote it down.
func queried(b *bench) {
	b.config(fmt.Sprintf(somebodies, strings.Repeat("a", 64)))
	b.settle()
	other := newBench(b.T, b.cli, b.agent)
	other.prefix = b.prefix
	other.config("")
	write(b.T, filepath.Join(other.dir, "all.tfquery.hcl"), `list "botscreen_profile" "all" {
  provider = botscreen
}
list "botscreen_screen" "stopped" {
  provider = botscreen
  config {
    profile = "a-`+b.prefix+`"
    status  = "stopped"
  }
}
`)
	o := other.must("query", "-no-color", "-generate-config-out=found.tf")
	for _, name := range []string{"a-", "b-", "c-", "sa-"} {
		other.says(o, name+b.prefix+"@default")
	}
	if strings.Contains(o.text, "sb-"+b.prefix) {
		b.Errorf("more than what was asked for:\n%s", o.raw)
	}
	other.says(other.apply(), "4 imported")
	other.empty()
	b.destroy()
}

// actions: restart, stop and revoke do what they say, refuse what the resource refuses, and
// leave nothing for the next plan to put right.
func actions(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	s := b.serve()
	id, job := b.name("desk")+"@default", "botscreen-"+b.name("desk")
	before := b.state()[deskAddress]["alloc_id"]
	s.works("botscreen_screen_restart", map[string]any{"screen": id, "reason": "a stuck browser"}, "Restarting the desktop", "is ready")
	if got := b.job(job).Meta["botscreen_reason"]; got != "a stuck browser" {
		b.Errorf("the job's reason is %q", got)
	}
	b.empty()
	b.apply("-refresh-only")
	if after := b.state()[deskAddress]; after["alloc_id"] == before || after["status"] != "running" {
		b.Errorf("after the restart: %v", after)
	}

	b.botscreen("take", b.name("desk"), "--reason", "a captcha")
	b.awaitHolder("human")
	refusal := []string{"A person holds the screen", "force = true"}
	s.refuses("botscreen_screen_restart", map[string]any{"screen": b.name("desk")}, refusal...)
	s.refuses("botscreen_screen_stop", map[string]any{"screen": job}, refusal...)
	s.works("botscreen_screen_restart", map[string]any{"screen": b.name("desk"), "force": true, "timeout": "3m"}, "is ready")
	if _, kept := b.job(job).Meta["botscreen_reason"]; kept {
		b.Error("a restart without a reason keeps an older one's")
	}

	b.botscreen("release", b.name("desk"), "--force") // a restart gives nobody's screen away
	b.awaitHolder("agent")

	b.revokes(s)

	s.works("botscreen_screen_stop", map[string]any{"screen": b.name("desk"), "namespace": "default"}, "has ended")
	b.allocs(job, func(all []*api.AllocationListStub) bool { return running(all) == 0 })
	b.empty() // whether it runs was not said
	b.apply("-refresh-only")
	b.has(deskAddress, "desired_state", "stopped")
	s.works("botscreen_screen_stop", map[string]any{"screen": id}, "has ended") // it has already
	s.refuses("botscreen_screen_restart", map[string]any{"screen": id}, "is stopped", `desired_state = "running"`)
	b.config(desktopOf(b, "800x600", `desired_state = "running"`))
	b.settle()

	for _, action := range []string{"botscreen_screen_restart", "botscreen_screen_stop"} {
		s.refuses(action, map[string]any{"screen": "nobody"}, `No screen "nobody" in namespace "default"`)
		s.refuses(action, map[string]any{"screen": "nobody", "timeout": "soon"}, "must be a duration")
	}
	s.refuses("botscreen_tickets_revoke", map[string]any{"screen": "nobody"}, `No running screen "nobody"`)
	s.refuses("botscreen_tickets_revoke", map[string]any{"screen": "nobody", "namespace": "*"}, "Invalid namespace")
	b.destroy()
}

// revokes: an action ends tickets that somebody else has made.
func (b *bench) revokes(s *served) {
	b.Helper()
	desk := map[string]any{"screen": b.name("desk")}
	s.works("botscreen_tickets_revoke", desk, "No ticket")
	ticket, end := s.openTicket(b.name("desk"))
	s.works("botscreen_tickets_revoke", desk, "have ended")
	if audit := b.botscreen("audit", b.name("desk")); !strings.Contains(audit, "ticket_revoked") {
		b.Errorf("the audit does not tell:\n%s", audit)
	} else if strings.Contains(audit, ticket) {
		b.Error("the audit has the ticket")
	}
	s.works("botscreen_tickets_revoke", desk, "No ticket")
	end() // an end of what has ended is no trouble
}

const somebodies = `
resource "botscreen_profile" "p" {
  for_each = { a = "blue", b = "blue", c = "red" }
  name     = "${each.key}-PREFIX"
  labels   = { lane = each.value, team = "x" }
  memory   = 300
}
resource "botscreen_placement" "p" {
  name = "p-PREFIX"
}
resource "botscreen_sandbox_image" "i" {
  name      = "i-PREFIX"
  reference = "registry.example/desk:1"
  digest    = "sha256:%s"
}
resource "botscreen_screen" "s" {
  for_each      = botscreen_profile.p
  name          = "s${each.key}-PREFIX"
  profile       = each.value.ref
  desired_state = "stopped"
}
`

// lists: every kind of resource is found by its list, with the identity that an import takes.
func lists(b *bench) {
	b.config(fmt.Sprintf(somebodies, strings.Repeat("a", 64)))
	b.settle()
	s := b.serve()
	b.proxy.counts()
	for resource, want := range map[string]int{"profile": 3, "placement": 1, "sandbox_image": 1, "screen": 3} {
		for _, include := range []bool{false, true} {
			all := s.list("botscreen_"+resource, nil, include, 0)
			if len(all) != want {
				b.Fatalf("%s: %d results, want %d: %v", resource, len(all), want, all)
			}
			for _, one := range all {
				if one.name != one.identity["name"]+"@default" || one.identity["namespace"] != "default" || !strings.HasSuffix(one.identity["name"], b.prefix) {
					b.Errorf("%s: %+v", resource, one)
				}
				if include != (one.resource["name"] == one.identity["name"]) {
					b.Errorf("%s with resources %t: %v", resource, include, one.resource)
				}
			}
		}
	}
	if n := b.proxy.counts()["GET /v1/var"]; n != 5 { // one for each record that is wanted whole
		b.Errorf("%d records were read", n)
	}
	if blue := s.list("botscreen_profile", map[string]any{"labels": map[string]string{"lane": "blue", "team": "x"}}, false, 0); len(blue) != 2 {
		b.Errorf("blue: %v", blue)
	}
	if some := s.list("botscreen_profile", nil, false, 2); len(some) != 2 {
		b.Errorf("limited: %v", some)
	}
	if one := s.list("botscreen_screen", map[string]any{"profile": "a-" + b.prefix, "status": "stopped"}, true, 0); len(one) != 1 ||
		one[0].resource["profile"] != b.state()[`botscreen_screen.s["a"]`]["profile"] || one[0].resource["desired_state"] != "stopped" {
		b.Errorf("screens of a: %v", one)
	}
	b.proxy.counts()
	blue := map[string]any{"status": "stopped", "labels": map[string]string{"lane": "blue"}}
	if two := s.list("botscreen_screen", blue, false, 0); len(two) != 2 || two[0].identity["name"] != "sa-"+b.prefix || two[1].identity["name"] != "sb-"+b.prefix {
		b.Errorf("blue screens: %v", two)
	}
	if n := b.proxy.counts()["GET /v1/var"]; n != 3 { // each profile once
		b.Errorf("%d records were read for the labels", n)
	}
	b.config(fmt.Sprintf(somebodies, strings.Repeat("a", 64)) + "data \"botscreen_screens\" \"red\" {\n  labels = { lane = \"red\" }\n}\n")
	b.settle()
	if red, _ := b.state()["data.botscreen_screens.red"]["screens"].([]any); len(red) != 1 || red[0].(map[string]any)["name"] != "sc-"+b.prefix {
		b.Errorf("red screens: %v", red)
	}
	if none := s.list("botscreen_screen", map[string]any{"status": "running"}, false, 0); len(none) != 0 {
		b.Errorf("running: %v", none)
	}
	b.destroy()
}
