// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
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
	b.ended(b.agent, b.name("desk"))
	if _, _, err := b.agent.api.Jobs().Info("botscreen-"+b.name("desk"), nil); err == nil || !strings.Contains(err.Error(), "job not found") {
		b.Errorf("the job after destroy: %v", err)
	}
	if left, _, _ := b.agent.api.Variables().PrefixList(b.prefix+"/", nil); len(left) != 0 {
		b.Errorf("records after destroy: %v", left)
	}
}

var _ = add(
	row{id: "T-PRO-4 screen stopped", f: stoppedScreen},
	row{id: "T-JOB-1", f: jobChangedBetween},
	row{id: "T-DRIFT-2 / TFM-03", f: jobDrift},
	row{id: "T-SCR-1", f: notInTime, desktop: true},
	row{id: "T-SCR-2", f: idleStops, desktop: true},
	row{id: "T-SCR-3", f: alwaysRuns, desktop: true},
	row{id: "T-SCR-4", f: triggers, desktop: true},
	row{id: "T-SCR-5", f: failedScreen, desktop: true},
	row{id: "T-SCR-6 / TFM-10", f: destroys},
	row{id: "T-LEASE / TFM-06", f: heldScreen, desktop: true},
)

func (b *bench) job(id string) *api.Job {
	b.Helper()
	job, _, err := b.agent.api.Jobs().Info(id, nil)
	if err != nil {
		b.Fatal(err)
	}
	return job
}

// stoppedScreen: a screen can be declared without running, changed, imported, destroyed.
func stoppedScreen(b *bench) {
	conf := func(lines ...string) string {
		return desktopOf(b, "800x600", append([]string{`desired_state = "stopped"`}, lines...)...)
	}
	b.config(conf())
	b.settle()
	b.has(deskAddress, "status", "stopped")
	all := []string{
		`meta = { team = "a" }`, `restart_triggers = { week = "48" }`, `run_policy = "always"`, `wait_for = "placed"`, `purge_on_destroy = false`,
		`description = "a desk"`, `force = true`, `timeouts = { create = "3m" }`,
	}
	for i := range all {
		b.config(conf(all[:i+1]...))
		b.proxy.counts()
		plan, _ := b.plan()
		b.does(plan, deskAddress, "update")
		b.must("apply", "-no-color", "plan")
		if puts := b.proxy.counts()["PUT /v1/jobs"]; (puts > 0) != (i < 2) {
			b.Errorf("%s: the job was submitted %d times", all[i], puts)
		}
		b.empty()
	}
	b.config(conf(all[0]))
	b.settle()
	b.importsBack(deskAddress, b.name("desk"))
	b.config(strings.Replace(conf(all[0]), "desired_state", "job_id = \"x-PREFIX\"\n  desired_state", 1))
	plan, _ := b.plan()
	b.does(plan, deskAddress, "delete,create")
	b.settle()
	b.destroy()
}

func jobChangedBetween(b *bench) {
	b.config(desktopOf(b, "800x600", `desired_state = "stopped"`))
	b.settle()
	b.config(desktopOf(b, "1024x768", `desired_state = "stopped"`))
	id := "botscreen-" + b.name("desk")
	b.proxy.once(putsJob, func(http.ResponseWriter, *http.Request) bool {
		job := b.job(id)
		job.Meta["other"] = "hand"
		if _, _, err := b.agent.api.Jobs().Register(job, nil); err != nil {
			b.Error(err)
		}
		return false
	})
	b.fails(b.tryApply(), "The job of screen", "was changed since this plan", "Run plan again")
	if b.job(id).Meta["other"] != "hand" {
		b.Error("their change did not survive")
	}
	plan, _ := b.plan()
	b.does(plan, deskAddress, "update")
	b.settle()
	if b.job(id).Meta["other"] != "" {
		b.Error("the drift was not put right")
	}
	b.destroy()
}

// jobDrift: what is managed and was changed elsewhere is listed, and one apply cleans it.
func jobDrift(b *bench) {
	b.config(desktopOf(b, "800x600", `desired_state = "stopped"`))
	b.settle()
	id := "botscreen-" + b.name("desk")
	for want, edit := range map[string]func(*api.Job){
		"TaskGroups[0].Count: 3 → 1":                                    func(j *api.Job) { n := 3; j.TaskGroups[0].Count = &n },
		`TaskGroups[0].Tasks[0].Config.geometry: "640x480" → "800x600"`: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config["geometry"] = "640x480" },
		"Constraints[0]: none → block of":                               func(j *api.Job) { j.Constraints = nil },
		`TaskGroups[0].Tasks[0].Env.X: "set" → none`:                    func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"X": "1"} },
		"Priority: 80 → 50":                                             func(j *api.Job) { n := 80; j.Priority = &n },
	} {
		job := b.job(id)
		edit(job)
		if _, _, err := b.agent.api.Jobs().Register(job, nil); err != nil {
			b.Fatal(err)
		}
		plan, _ := b.plan()
		b.does(plan, deskAddress, "update")
		if drift := fmt.Sprint(plan[deskAddress].Before["drift"]); !strings.Contains(drift, want) {
			b.Errorf("drift is %s, want %q", drift, want)
		}
		if after := fmt.Sprint(plan[deskAddress].After["drift"]); after != "[]" {
			b.Errorf("drift is planned as %s", after)
		}
		b.settle()
	}
	// A profile that another program changed shows on the profile and on its screen.
	b.rewrite("profile/"+b.name("desk"), map[string]any{"geometry": "640x480"})
	plan, _ := b.plan()
	b.does(plan, "botscreen_profile.desk", "update")
	b.does(plan, deskAddress, "no-op") // the record goes back to what the job was made from
	b.settle()
	b.destroy()
}

// notInTime: a desktop that is not ready in time is removed by a create, and told of by an
// update. The driver's word is kept back on its way.
func notInTime(b *bench) {
	const soon = "15s" // time for the driver's first word, on a busy machine
	id := "botscreen-" + b.name("desk")
	hide := func(resp *http.Response) error {
		if !strings.HasSuffix(resp.Request.URL.Path, "/allocations") {
			return nil
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		text = []byte(strings.ReplaceAll(string(text), `"botscreen.state":"ready"`, `"botscreen.state":"starting"`))
		resp.Body = io.NopCloser(bytes.NewReader(text))
		resp.ContentLength = int64(len(text))
		resp.Header.Set("Content-Length", fmt.Sprint(len(text)))
		return nil
	}
	conf := func(geometry, timeout string) string {
		return desktopOf(b, geometry, fmt.Sprintf("timeouts = { create = %q, update = %q }", timeout, timeout))
	}
	b.proxy.plainly(hide)
	b.config(conf("800x600", soon))
	b.fails(b.tryApply(), "did not start within "+soon, "nomad alloc status", "Driver:", "the job was removed again")
	if _, _, err := b.agent.api.Jobs().Info(id, nil); err == nil {
		b.Error("the job is left")
	}
	if _, held := b.state()[deskAddress]; held {
		b.Error("the state has the screen")
	}
	b.proxy.plainly(nil)
	b.config(conf("800x600", "3m"))
	b.settle()
	before := b.state()[deskAddress]
	b.proxy.plainly(hide)
	b.config(conf("1024x768", soon))
	b.fails(b.tryApply(), "did not start within "+soon)
	b.proxy.plainly(nil)
	if after := b.state()[deskAddress]; after["profile"] != before["profile"] || after["alloc_id"] != before["alloc_id"] {
		b.Errorf("the state became %v", after)
	}
	b.config(conf("1024x768", "3m"))
	plan, _ := b.plan()
	b.does(plan, deskAddress, "update")
	b.settle()
	b.destroy()
}

// alwaysRuns: what ended by itself is started again where that was asked for, and is no
// change where it was not.
func alwaysRuns(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	id := "botscreen-" + b.name("desk")
	if _, _, err := b.agent.api.Jobs().Deregister(id, false, nil); err != nil {
		b.Fatal(err)
	}
	b.allocs(id, func(all []*api.AllocationListStub) bool { return len(all) == 1 && all[0].ClientStatus == "complete" })
	b.empty() // on_demand, and running was not asked for
	b.apply("-refresh-only")
	b.has(deskAddress, "status", "stopped")
	b.config(desktopOf(b, "800x600", `run_policy = "always"`))
	plan, _ := b.plan()
	b.does(plan, deskAddress, "update")
	b.settle()
	b.has(deskAddress, "status", "running")
	b.allocs(id, func(all []*api.AllocationListStub) bool { return running(all) == 1 })
	b.config(desktopOf(b, "800x600", `desired_state = "running"`))
	if _, _, err := b.agent.api.Jobs().Deregister(id, false, nil); err != nil {
		b.Fatal(err)
	}
	plan, _ = b.plan()
	if c := plan[deskAddress]; c.Before["desired_state"] != "stopped" || c.After["desired_state"] != "running" {
		b.Errorf("desired_state %v → %v", c.Before["desired_state"], c.After["desired_state"])
	}
	b.settle()
	b.destroy()
}

// allocs waits until the allocations of a job are as wanted.
func (b *bench) allocs(id string, ok func([]*api.AllocationListStub) bool) []*api.AllocationListStub {
	b.Helper()
	var all []*api.AllocationListStub
	eventually(b.T, "allocations of "+id+" as wanted", func() bool {
		var err error
		all, _, err = b.agent.api.Jobs().Allocations(id, true, nil)
		return err == nil && ok(all)
	})
	return all
}

func running(all []*api.AllocationListStub) int {
	n := 0
	for _, a := range all {
		if a.ClientStatus == "running" {
			n++
		}
	}
	return n
}

func triggers(b *bench) {
	b.config(desktopOf(b, "800x600", `restart_triggers = { week = "48" }`))
	b.settle()
	id := "botscreen-" + b.name("desk")
	b.config(desktopOf(b, "800x600", `restart_triggers = { week = "49" }`))
	b.settle()
	all := b.allocs(id, func(all []*api.AllocationListStub) bool { return len(all) == 2 && running(all) == 1 })
	if all[0].ClientStatus == all[1].ClientStatus {
		b.Errorf("allocations %v", all)
	}
	b.destroy()
}

// failedScreen: a desktop that ended with an error is a status, not a reason to make it
// again, unless that was asked for.
func failedScreen(b *bench) {
	b.config(desktopOf(b, "800x600"))
	b.settle()
	id := "botscreen-" + b.name("desk")
	alloc, _, err := b.agent.api.Allocations().Info(b.state()[deskAddress]["alloc_id"].(string), nil)
	if err != nil {
		b.Fatal(err)
	}
	for range 2 { // the restart of its policy as well
		b.allocs(id, func(all []*api.AllocationListStub) bool { return ready(newest(all)) })
		if err := b.agent.api.Allocations().Signal(alloc, nil, "desktop", "SIGKILL"); err != nil {
			b.Fatal(err)
		}
		b.allocs(id, func(all []*api.AllocationListStub) bool { return !ready(newest(all)) })
	}
	b.allocs(id, func(all []*api.AllocationListStub) bool { return newest(all).ClientStatus == "failed" })
	b.empty()
	b.apply("-refresh-only")
	b.has(deskAddress, "status", "failed")
	b.config(desktopOf(b, "800x600", `run_policy = "always"`))
	plan, _ := b.plan()
	if c := plan[deskAddress]; c.Before["status"] != "failed" || c.After["status"] != "running" {
		b.Errorf("status %v → %v", c.Before["status"], c.After["status"])
	}
	b.settle()
	b.destroy()
}

// ready says whether the newest word of the driver is that the screen is ready.
func ready(a *api.AllocationListStub) bool {
	return a.ClientStatus == "running" && said(a, "state") == "ready"
}

// said is the newest word of the driver about something, as far as the task runs.
func said(a *api.AllocationListStub, annotation string) string {
	state := a.TaskStates["desktop"]
	if state == nil || state.State != "running" {
		return ""
	}
	for _, e := range slices.Backward(state.Events) {
		if word := e.Details["botscreen."+annotation]; word != "" {
			return word
		}
	}
	return ""
}

// newest is the allocation that was made last.
func newest(all []*api.AllocationListStub) *api.AllocationListStub {
	if len(all) == 0 {
		return &api.AllocationListStub{}
	}
	return slices.MaxFunc(all, func(a, b *api.AllocationListStub) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
}

func destroys(b *bench) {
	id := "botscreen-" + b.name("desk")
	b.config(desktopOf(b, "800x600", `desired_state = "stopped"`))
	b.settle()
	b.destroy()
	if _, _, err := b.agent.api.Jobs().Info(id, nil); err == nil {
		b.Error("the job is left")
	}
	b.config(desktopOf(b, "800x600", `desired_state = "stopped"`, "purge_on_destroy = false"))
	b.settle()
	b.destroy()
	if job := b.job(id); job.Stop == nil || !*job.Stop {
		b.Error("the job runs")
	}
	if _, _, err := b.agent.api.Jobs().Deregister(id, true, nil); err != nil {
		b.Fatal(err)
	}
	b.settle()
	if _, _, err := b.agent.api.Jobs().Deregister(id, true, nil); err != nil {
		b.Fatal(err)
	}
	b.must("destroy", "-no-color", "-auto-approve", "-refresh=false") // already gone
	// A profile and a placement in use are not destroyed under their screen.
	b.config(desktopOf(b, "800x600", "wait_for = \"registered\""))
	b.apply()
	b.must("state", "rm", deskAddress)
	b.fails(b.run("destroy", "-no-color", "-auto-approve"), "is used by 1 screen", b.name("desk"), "force_destroy = true")
	b.agent.stopJobs(b.T, func(job string) bool { return job == id })
	b.destroy()
}
