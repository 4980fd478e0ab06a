// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"strings"
)

var _ = add(
	row{id: "T-PRO-4 screen", f: screenLife, desktop: true},
)

// desktopOf is a profile, a placement on the host and a screen, all named desk.
func desktopOf(b *bench, geometry string, lines ...string) string {
	return fmt.Sprintf(`
resource "botscreen_profile" "desk" {
  name               = %[1]q
  geometry           = %[2]q
  memory             = 300
  cpu                = 50
  min_free_memory_mb = 64
  start_timeout      = "60s"
}
resource "botscreen_placement" "host" {
  name                   = "host"
  isolation              = "host"
  allow_unsandboxed_host = true
}
resource "botscreen_screen" "desk" {
  name      = %[1]q
  profile   = botscreen_profile.desk.ref
  placement = botscreen_placement.host.ref
  %[3]s
}
`, b.name("desk"), geometry, strings.Join(lines, "\n  "))
}

const deskAddress = "botscreen_screen.desk"

// screenLife is the walk of a user: apply gives a desktop, a change restarts it, the plan
// after is empty, destroy leaves nothing.
func screenLife(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	first := b.state()[deskAddress]
	if first["status"] != "running" || first["isolation"] != "host" || first["job_id"] != "botscreen-"+b.name("desk") {
		b.Fatalf("the screen: %v", first)
	}
	if lease, _ := first["lease"].(map[string]any); lease["holder"] != "agent" {
		b.Errorf("lease: %v", first["lease"])
	}
	b.config(desktopOf(b, "1024x768"))
	plan, out := b.plan()
	b.does(plan, "botscreen_profile.desk", "update")
	b.does(plan, deskAddress, "update")
	b.changesOnly(plan["botscreen_profile.desk"], "geometry", "ref")
	b.says(out, "This change restarts the running desktop")
	b.settle()
	second := b.state()[deskAddress]
	if second["alloc_id"] == first["alloc_id"] || second["job_version"].(float64) != first["job_version"].(float64)+1 {
		b.Errorf("%v became %v", first, second)
	}
	b.destroy()
	if _, _, err := b.agent.client(b.T).Jobs().Info("botscreen-"+b.name("desk"), nil); err == nil || !strings.Contains(err.Error(), "job not found") {
		b.Errorf("the job after destroy: %v", err)
	}
	if left, _, _ := b.agent.client(b.T).Variables().PrefixList(b.prefix+"/", nil); len(left) != 0 {
		b.Errorf("records after destroy: %v", left)
	}
}
