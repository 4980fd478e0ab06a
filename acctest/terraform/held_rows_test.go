// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// heldScreen: a person has the screen.
func heldScreen(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	before := b.state()[deskAddress]["alloc_id"]
	b.botscreen("take", b.name("desk"), "--reason", "a captcha")
	b.awaitHolder("human")
	b.empty()
	b.apply("-refresh-only")
	if lease, _ := b.state()[deskAddress]["lease"].(map[string]any); lease["holder"] != "human" || lease["epoch"] == nil || lease["since"] == "" {
		b.Errorf("lease: %v", lease)
	}
	b.config(desktopOf(b, "1024x768"))
	refusal := []string{"A person holds the screen", "A person has controlled it since", "force = true"}
	b.fails(b.run("plan", "-no-color"), refusal...)
	b.fails(b.run("destroy", "-no-color", "-auto-approve"), refusal...)
	b.fails(b.run("plan", "-no-color", "-replace="+deskAddress), refusal...)
	// Taken between plan and apply: refused just before the change.
	b.botscreen("release", b.name("desk"), "--force")
	b.awaitHolder("agent")
	b.plan()
	b.botscreen("take", b.name("desk"), "--reason", "another captcha")
	b.awaitHolder("human")
	b.fails(b.run("apply", "-no-color", "plan"), refusal...)
	if now := b.job("botscreen-" + b.name("desk")); now.TaskGroups[0].Tasks[0].Config["geometry"] != "800x600" {
		b.Error("the job was changed")
	}
	b.config(desktopOf(b, "1024x768", "force = true"))
	b.settle()
	if after := b.state()[deskAddress]["alloc_id"]; after == before {
		b.Error("the desktop is the same")
	}
	b.destroy()
}

// botscreen runs our command against the agent.
func (b *bench) botscreen(args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), binary(b.T, "botscreen"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "NOMAD_ADDR=http://" + b.agent.addr, "NOMAD_TOKEN=" + b.agent.token}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("botscreen %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// idleStops: a desktop that ends because nobody uses it is a status and no change; always
// starts it again, once. Sleeping is neither an end nor a change.
func idleStops(b *bench) {
	id := "botscreen-" + b.name("desk")
	conf := func(action string, lines ...string) string {
		return strings.Replace(desktopOf(b, "800x600", lines...), "min_free", "idle_stop = \"2s\"\n  idle_action = \""+action+"\"\n  min_free", 1)
	}
	b.config(conf("exit"))
	b.apply()
	b.allocs(id, func(all []*api.AllocationListStub) bool { return len(all) == 1 && all[0].ClientStatus == "complete" })
	b.empty()
	b.apply("-refresh-only")
	b.has(deskAddress, "status", "idle_stopped")
	if reason := fmt.Sprint(b.state()[deskAddress]["stop_reason"]); !strings.HasPrefix(reason, "not used for") {
		b.Errorf("stop_reason %q", reason)
	}
	b.config(conf("exit", `run_policy = "always"`))
	plan, _ := b.plan()
	if c := plan[deskAddress]; c.Before["status"] != "idle_stopped" || c.After["status"] != "running" {
		b.Errorf("status %v → %v", c.Before["status"], c.After["status"])
	}
	b.must("apply", "-no-color", "plan")
	b.allocs(id, func(all []*api.AllocationListStub) bool { return len(all) == 2 })
	b.config(conf("sleep")) // another type of job
	b.apply()
	if kind := *b.job(id).Type; kind != "service" {
		b.Errorf("the job is a %s", kind)
	}
	b.allocs(id, func(all []*api.AllocationListStub) bool {
		return running(all) == 1 && said(newest(all), "state") == "asleep"
	})
	b.empty()
	b.apply("-refresh-only")
	b.has(deskAddress, "status", "asleep")
	b.destroy()
}

// awaitHolder waits until the cluster knows: a client sends its tasks' events in batches.
func (b *bench) awaitHolder(want string) {
	b.Helper()
	b.allocs("botscreen-"+b.name("desk"), func(all []*api.AllocationListStub) bool { return said(newest(all), "holder") == want })
}
