// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

const withTemplate = `template {
        destination = "secrets/bot.env"
        env         = true
        change_mode = "%s"
        change_signal = "SIGHUP"
        data        = <<EOT
KEY={{ with nomadVar "nomad/jobs/tmpl" }}{{ .key }}{{ end }}
EOT
      }`

// A task waits for the variable of its template, gets its value, and is restarted
// when it changes; a restart of the agent changes nothing.
func TestTemplateOfAVariable(t *testing.T) {
	d := devagenttest.NewDirs(t)
	a := devagenttest.StartIn(t, d)
	register(t, a.Client, shell("tmpl", "echo key $KEY; cat $NOMAD_SECRETS_DIR/bot.env; exec sleep 1000", fmt.Sprintf(withTemplate, "restart")))
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return len(all) > 0 && all[0].TaskStates["t"] != nil &&
			find(all[0].TaskStates["t"], "Template").DisplayMessage == "Missing: nomad.var.block(nomad/jobs/tmpl@default.global)"
	})
	if _, _, err := a.Client.Variables().Create(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "one"}}, nil); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, running("tmpl"))
	alloc := one(t, a.Client, "tmpl")
	await(t, func() bool { return readLog(t, a, alloc, "start", 0) == "key one\nKEY=one\n" })

	// The next agent finds the task as it was: the file on disk is what was rendered.
	a.Stop()
	a = devagenttest.StartIn(t, d)
	devagenttest.AwaitAllocs(t, a.Client, running("tmpl"))
	if _, _, err := a.Client.Variables().Create(&api.Variable{Path: "other", Items: map[string]string{"k": "v"}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Client.Variables().Update(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "two"}}, nil); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return readLog(t, a, alloc, "start", 0) == "key one\nKEY=one\nkey two\nKEY=two\n" })
	if s := one(t, a.Client, "tmpl").TaskStates["t"]; s.Restarts != 1 || find(s, "Restart Signaled").DisplayMessage != "Template with change_mode restart re-rendered" {
		t.Errorf("restarts %d, events %v", s.Restarts, eventTypes(s))
	}
	a.Purge(t)
}

func TestTemplateThatSignals(t *testing.T) {
	a := devagenttest.Start(t)
	if _, _, err := a.Client.Variables().Create(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "one"}}, nil); err != nil {
		t.Fatal(err)
	}
	register(t, a.Client, shell("tmpl", "trap 'cat $NOMAD_SECRETS_DIR/bot.env' HUP; echo up; while :; do sleep 0.05; done", fmt.Sprintf(withTemplate, "signal")))
	devagenttest.AwaitAllocs(t, a.Client, running("tmpl"))
	alloc := one(t, a.Client, "tmpl")
	await(t, func() bool { return readLog(t, a, alloc, "start", 0) == "up\n" })
	if _, _, err := a.Client.Variables().Update(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "two"}}, nil); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return readLog(t, a, alloc, "start", 0) == "up\nKEY=two\n" })
	if s := one(t, a.Client, "tmpl").TaskStates["t"]; s.Restarts != 0 {
		t.Errorf("%d restarts", s.Restarts)
	}
}

// X6: a template is written below the task's directory, whatever links a task planted
// there.
func TestTemplateDoesNotFollowLinksOut(t *testing.T) {
	a := devagenttest.Start(t)
	outside := t.TempDir()
	if _, _, err := a.Client.Variables().Create(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "one"}}, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(fmt.Sprintf(withTemplate, "restart"), "secrets/bot.env", "local/sub/bot.env", 1)
	register(t, a.Client, shell("tmpl", "rm -rf local/sub; ln -s "+outside+" local/sub; echo planted; exec sleep 1000", text))
	devagenttest.AwaitAllocs(t, a.Client, running("tmpl"))
	alloc := one(t, a.Client, "tmpl")
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "planted") })
	if _, _, err := a.Client.Variables().Update(&api.Variable{Path: "nomad/jobs/tmpl", Items: map[string]string{"key": "two"}}, nil); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return all[0].TaskStates["t"].State == "dead" && all[0].ClientStatus == api.AllocClientStatusFailed
	})
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

const rolling = `update {
      max_parallel      = 1
      health_check      = "task_states"
      min_healthy_time  = "700ms"
      healthy_deadline  = "20s"
      progress_deadline = "30s"
      auto_revert       = true
    }
    task "t" {`

func deploymentIs(t *testing.T, c *api.Client, job string, version uint64, status string) *api.Deployment {
	t.Helper()
	q := &api.QueryOptions{}
	for {
		list, meta, err := c.Jobs().Deployments(job, true, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.JobVersion == version && d.Status == status {
				return d
			}
		}
		q.WaitIndex = meta.LastIndex
	}
}

// A new version rolls out one allocation after the other; one that fails is rolled
// back.
func TestDeploymentRollsAndReverts(t *testing.T) {
	a := devagenttest.Start(t)
	job := func(command string) string {
		return strings.Replace(strings.Replace(shell("roll", command, ""), "task \"t\" {", rolling, 1), "group \"g\" {", "group \"g\" {\ncount = 2", 1)
	}
	register(t, a.Client, job("exec sleep 1000"))
	d := deploymentIs(t, a.Client, "roll", 0, "successful")
	if s := d.TaskGroups["g"]; s.DesiredTotal != 2 || s.HealthyAllocs != 2 || d.StatusDescription != "Deployment completed successfully" {
		t.Errorf("got %+v, %q", s, d.StatusDescription)
	}
	register(t, a.Client, job("exec sleep 1001"))
	deploymentIs(t, a.Client, "roll", 1, "successful")
	if most := parallel(t, a.Client, "roll", 1); most > 1 {
		t.Errorf("%d allocations were replaced at once", most)
	}

	register(t, a.Client, job("exit 1"))
	d = deploymentIs(t, a.Client, "roll", 2, "failed")
	if d.StatusDescription != "Failed due to unhealthy allocations - rolling back to job version 1" {
		t.Errorf("got %q", d.StatusDescription)
	}
	deploymentIs(t, a.Client, "roll", 3, "successful")
	info, _, err := a.Client.Jobs().Info("roll", nil)
	if err != nil || *info.Version != 3 || info.TaskGroups[0].Tasks[0].Config["command"] != "exec sleep 1001" || !*info.Stable {
		t.Errorf("version %d, %v, %v", *info.Version, info.TaskGroups[0].Tasks[0].Config, err)
	}
}

// parallel says how many allocations of a version came up before the first of them
// was healthy.
func parallel(t *testing.T, c *api.Client, job string, version uint64) int {
	t.Helper()
	all, _, err := c.Jobs().Allocations(job, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(a *api.AllocationListStub) bool { return a.JobVersion != version })
	first := all[0].DeploymentStatus.Timestamp
	for _, a := range all {
		if a.DeploymentStatus.Timestamp.Before(first) {
			first = a.DeploymentStatus.Timestamp
		}
	}
	n := 0
	for _, a := range all {
		if a.CreateTime < first.UnixNano() {
			n++
		}
	}
	return n
}

// Network mode none gives a namespace of the allocation's own, with nothing but a
// loopback interface, and takes it away.
func TestNetworkModeNone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	a := devagenttest.Start(t)
	register(t, a.Client, strings.Replace(shell("lone", "exec sleep 1000", ""), "task \"t\" {", "network {\nmode = \"none\"\n}\ntask \"t\" {", 1))
	all := devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return running("lone")(all) || len(all) > 0 && all[0].ClientStatus == api.AllocClientStatusFailed
	})
	if all[0].ClientStatus == api.AllocClientStatusFailed {
		t.Skip("this machine does not let root make network namespaces: " + all[0].ClientDescription)
	}
	path := "/var/run/netns/" + all[0].ID
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, _, err := a.Client.Jobs().Deregister("lone", false, nil); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}

// memory_max = -1 is no limit; it is not passed on as one (NMD-10).
func TestMemoryMaxUnlimited(t *testing.T) {
	a := devagenttest.Start(t)
	register(t, a.Client, strings.Replace(shell("over", "env; exec sleep 1000", ""), "memory = 20", "memory = 20\nmemory_max = -1", 1))
	devagenttest.AwaitAllocs(t, a.Client, running("over"))
	alloc := one(t, a.Client, "over")
	if m := alloc.AllocatedResources.Tasks["t"].Memory; m.MemoryMB != 20 || m.MemoryMaxMB != -1 {
		t.Errorf("got %+v", m)
	}
	await(t, func() bool { return strings.Contains(readLog(t, a, alloc, "start", 0), "NOMAD_MEMORY_LIMIT=20\n") })
	if log := readLog(t, a, alloc, "start", 0); strings.Contains(log, "NOMAD_MEMORY_MAX_LIMIT") {
		t.Error("a limit is in the environment")
	}
}

// NMD-24: a denied driver's broken configuration does not keep the agent from
// starting.
func TestDeniedDriverIsNotLoaded(t *testing.T) {
	d := devagenttest.NewDirs(t)
	c := d.Config(t)
	c.Plugins[0].Config = map[string]any{"no_such_option": true}
	if _, err := newAgent(t, c); err == nil || !strings.Contains(err.Error(), "no_such_option") {
		t.Errorf("a broken configuration: %v", err)
	}
	c.Denied = []string{devagenttest.DriverName}
	a, err := newAgent(t, c)
	if err != nil || len(a.Drivers()) != 0 {
		t.Errorf("got %v", err)
	}
}

// The secrets of a task do not outlive it.
func TestSecretsAreForgotten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("secrets lie in memory for root only")
	}
	a, alloc := start(t, "secret", "echo hidden > secrets/file; exec sleep 1000", "")
	dir := filepath.Join(a.DataDir(), "alloc", alloc.ID, "t", "secrets")
	if !strings.Contains(mounts(t), dir) {
		t.Skip("this machine does not let root mount")
	}
	if _, _, err := a.Client.Jobs().Deregister("secret", false, nil); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return !strings.Contains(mounts(t), dir) })
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func mounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
