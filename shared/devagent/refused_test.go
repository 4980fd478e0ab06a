// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// What the agent does not run is refused by name, also in a job that comes as JSON,
// and nothing is registered.
func TestUnsupportedJobsAreRefused(t *testing.T) {
	a := devagenttest.Start(t)
	for want, edit := range map[string]func(j *api.Job){
		`"periodic" in job`:                        func(j *api.Job) { spec := "@daily"; j.Periodic = &api.PeriodicConfig{Spec: &spec} },
		`"service" in group "g"`:                   func(j *api.Job) { j.TaskGroups[0].Services = []*api.Service{{Name: "web"}} },
		`"volume" in group "g"`:                    func(j *api.Job) { j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"v": {Name: "v"}} },
		`"artifact" in group "g" task "t"`:         func(j *api.Job) { j.TaskGroups[0].Tasks[0].Artifacts = []*api.TaskArtifact{{}} },
		`"vault" in group "g" task "t"`:            func(j *api.Job) { j.TaskGroups[0].Tasks[0].Vault = &api.Vault{Role: "x"} },
		`"lifecycle" in group "g" task "t"`:        func(j *api.Job) { j.TaskGroups[0].Tasks[0].Lifecycle = &api.TaskLifecycle{Hook: "prestart"} },
		`"leader" in group "g" task "t"`:           func(j *api.Job) { j.TaskGroups[0].Tasks[0].Leader = true },
		`"device" in group "g" task "t" resources`: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices = []*api.RequestedDevice{{Name: "gpu"}} },
		`"spread" in job`:                          func(j *api.Job) { j.Spreads = []*api.Spread{{}} },
		`network mode "bridge" is not run`:         func(j *api.Job) { j.TaskGroups[0].Networks = []*api.NetworkResource{{Mode: "bridge"}} },
		`canary and auto_promote are not run`:      func(j *api.Job) { n := 1; j.TaskGroups[0].Update.Canary = &n },
		`Template 1 validation failed`: func(j *api.Job) {
			data, dest := `{{ key "x" }}`, "local/x"
			j.TaskGroups[0].Tasks[0].Templates = []*api.Template{{EmbeddedTmpl: &data, DestPath: &dest}}
		},
		`"ephemeral_disk" in group "g"`: func(j *api.Job) { yes := true; j.TaskGroups[0].EphemeralDisk.Sticky = &yes },
	} {
		job := parse(t, a.Client, shell("bad", "x", ""))
		edit(job)
		_, _, err := a.Client.Jobs().Register(job, nil)
		wantText(t, err, want)
	}
	for want, edit := range map[string]func(j *api.Job){
		"Missing task driver":                               func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "" },
		"Job ID contains a space":                           func(j *api.Job) { id := "a b"; j.ID = &id },
		`Invalid job type: "cron"`:                          func(j *api.Job) { kind := "cron"; j.Type = &kind },
		"Job priority must be between [1, 100]":             func(j *api.Job) { n := 101; j.Priority = &n },
		`job "bad" is in nonexistent namespace "elsewhere"`: func(j *api.Job) { ns := "elsewhere"; j.Namespace = &ns },
		`job "bad" is in nonexistent node pool "mars"`:      func(j *api.Job) { pool := "mars"; j.NodePool = &pool },
		`Unsupported restart mode: "often"`:                 func(j *api.Job) { mode := "often"; j.TaskGroups[0].RestartPolicy.Mode = &mode },
		"Task name cannot include slashes":                  func(j *api.Job) { j.TaskGroups[0].Tasks[0].Name = "../x" },
		`Unknown constraint type "~"`:                       func(j *api.Job) { j.Constraints = []*api.Constraint{{LTarget: "a", Operand: "~"}} },
		"minimum MemoryMB value is 10; got 1":               func(j *api.Job) { n := 1; j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &n },
	} {
		job := parse(t, a.Client, shell("bad", "x", ""))
		edit(job)
		_, _, err := a.Client.Jobs().Register(job, nil)
		wantText(t, err, want)
	}
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// A job that was read from the agent can be sent back: what Nomad fills in is no
// request.
func TestJobCanBeSentBack(t *testing.T) {
	a, _ := start(t, "back", "exec sleep 1000", "")
	job, _, err := a.Client.Jobs().Info("back", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := a.Client.Jobs().Register(job, nil)
	if err != nil || resp.JobModifyIndex != *job.JobModifyIndex {
		t.Errorf("got %+v, %v", resp, err)
	}
	again, _, err := a.Client.Jobs().Info("back", nil)
	if err != nil || *again.Version != *job.Version {
		t.Errorf("version %d became %d, %v", *job.Version, *again.Version, err)
	}
}

// The positions of a job file's faults come through the API.
func TestParseFaultsHavePositions(t *testing.T) {
	a := devagenttest.Start(t)
	for _, text := range []string{"job \"x\" {\n bogus {}\n}", "job \"x\" {", strings.Repeat("%&/()=?{", 1<<17)} {
		_, err := a.Client.Jobs().ParseHCL(text, true)
		wantText(t, err, "400")
		wantText(t, err, "Failed to parse job: input.hcl:")
	}
	_, err := a.Client.Jobs().ParseHCL(strings.Repeat("#", 9<<20), true)
	wantText(t, err, "413")
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// Every example is a job that the agent takes, with nothing refused or ignored.
func TestExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/nomad/*.nomad.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	a := devagenttest.Start(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plan, _, err := a.Client.Jobs().Plan(parse(t, a.Client, string(text)), true, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		// This agent has no driver for it, and nothing else is in the way.
		for group, m := range plan.FailedTGAllocs {
			if len(m.ConstraintFiltered) != 1 || m.ConstraintFiltered["missing drivers"] != 1 {
				t.Errorf("%s: group %s: %+v", file, group, m)
			}
		}
	}
}
