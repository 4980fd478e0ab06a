// SPDX-License-Identifier: MPL-2.0

// Package conformance runs the checklist of Nomad's plugin protocol against a built driver plugin: the
// real binary, started and driven by package host over the real protocol, as a Nomad client would.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Target{Binary: path, Driver: "botscreen", Runs: …})
//	}
//
// Subtests are named after the checklist, such as C40_duplicate_id. What a driver cannot show, or
// the target gives no means for, is skipped with the reason. Every task carries a mark in its
// environment, by which the suite finds all processes of the task on this machine, whoever their
// parent is; it needs to be root for that.
package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// Config is a `config` block as a map; hclconfig.ParseHCL makes one.
type Config = map[string]any

// Target is a driver plugin and the means to test it. Only Binary, Driver and Runs are required.
type Target struct {
	// Binary is the plugin's executable, Args follow it.
	Binary string
	Args   []string
	// Driver is the name, as in a job's `driver`.
	Driver string
	// PluginConfig is a valid plugin configuration, RejectedConfig one that fits the schema and is
	// refused by SetConfig.
	PluginConfig   Config
	RejectedConfig Config

	// Runs is a task that runs until it is stopped, and ends soon when asked to. It is called for
	// every task, so that tasks that must differ can.
	Runs func(t testing.TB) Config
	// Exits is a task that ends by itself with the code, the given time after its start.
	Exits func(t testing.TB, code int, after time.Duration) Config
	// Stubborn is a task that ignores the stop signal once LogText is in its log.
	Stubborn func(t testing.TB) Config
	// Fails is a task that cannot start.
	Fails func(t testing.TB) Config
	// Descends is a task that leaves its process group and session with some of its processes.
	Descends func(t testing.TB) Config
	// OutOfMemory is a task that is killed for its memory.
	OutOfMemory func(t testing.TB) Config

	// Kill ends the task as a fault would, with SIGKILL to what it cannot live without. Nil kills the
	// pid that InspectTask reports as attribute "pid".
	Kill func(t testing.TB, inspection *nomadplugin.TaskInspection)
	// Instances counts the runs of tasks among the processes that carry a mark. Nil counts the
	// processes whose parent does not carry it.
	Instances func(t testing.TB, processes []Process) int
	// Traces lists what the driver keeps outside of its processes while tasks run, in words:
	// files, containers, mounts, locks. It must be the same after a test as before.
	Traces func(t testing.TB) []string
	// Degrade makes the driver unhealthy until the returned function is called.
	Degrade func(t testing.TB) (restore func())
	// Forge makes a handle whose process identity is somebody else's: same pid, another start. pid is
	// a live process that must survive.
	Forge func(t testing.TB, handle *nomadplugin.TaskHandle, pid int) *nomadplugin.TaskHandle
	// Signalled waits until the task shows that its lead process received a HUP. Nil skips.
	Signalled func(t testing.TB, log func() string)

	// Shell runs a script given as last argument inside the task, such as {"/bin/sh", "-c"}. Empty
	// skips everything about exec.
	Shell []string
	// LogText is something that the log of a Runs or Stubborn task contains soon after the start. Empty
	// skips what depends on it.
	LogText string
	// User is a plain user name that tasks may run as. Empty skips everything about users.
	User string
	// Env adapts a task's environment, for drivers whose tasks need one. It may be nil.
	Env map[string]string

	// StopTimeout is what a Runs task may take to end when asked; 0 is 5 s.
	StopTimeout time.Duration
	// LaunchLimit is what a throw-away launch may take; 0 is 1 s.
	LaunchLimit time.Duration
	// LogTimeout is what StartTask may take to give up on a log nobody reads; 0 is 15 s.
	LogTimeout time.Duration
	// ProbeDeadline is what SetConfig to the first fingerprint may take; 0 is 1 s.
	ProbeDeadline time.Duration
	// EndsInOrder says that a stop whose timeout ran out still ends a task with code 0: a task that is
	// more than one program has ended as asked although one of them had to be killed.
	EndsInOrder bool
	// Tasks is how many tasks run at the same time in the load test; 0 is 50.
	Tasks int
	// NoStats and NoEvents say that the driver has none.
	NoStats, NoEvents bool
}

func (target Target) withDefaults() Target {
	limits := []struct {
		field *time.Duration
		value time.Duration
	}{
		{&target.StopTimeout, 5 * time.Second},
		{&target.LaunchLimit, time.Second},
		{&target.LogTimeout, 15 * time.Second},
		{&target.ProbeDeadline, time.Second},
	}
	for _, limit := range limits {
		if *limit.field == 0 {
			*limit.field = limit.value
		}
	}
	if target.Tasks == 0 {
		target.Tasks = 50
	}
	return target
}

// patience is how long the suite waits for what must happen soon, on a machine with other things to
// do.
const patience = 20 * time.Second

// Run runs the checklist. It changes TMPDIR and other variables of the test process, so the caller
// must not be parallel.
func Run(t *testing.T, target Target) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: task processes of other users are looked at")
	}
	target = target.withDefaults()
	for _, group := range []struct {
		name   string
		checks func(*suite)
	}{
		{"launch", (*suite).launchChecks},
		{"fingerprint", (*suite).fingerprintChecks},
		{"shared_task", (*suite).sharedTaskChecks},
		{"lifecycle", (*suite).lifecycleChecks},
		{"stop", (*suite).stopChecks},
		{"environment", (*suite).environmentChecks},
		{"recovery", (*suite).recoveryChecks},
	} {
		t.Run(group.name, func(t *testing.T) { group.checks(newSuite(t, target)) })
	}
}
