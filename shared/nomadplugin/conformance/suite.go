// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// agentSecret stands for what only the agent may know. It is in the plugin's environment and must
// not be in a task's.
const (
	agentSecretName  = "NOMAD_TOKEN"
	agentSecretValue = "conformance-agent-secret"
)

// suite is one group of checks with a host of its own.
type suite struct {
	*testing.T
	Target
	host *host.Host
	tmp  string
}

func newSuite(t *testing.T, target Target) *suite {
	t.Helper()
	// Short, because plugins put their sockets there.
	tmp, err := os.MkdirTemp("", "np")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	t.Setenv("TMPDIR", tmp)
	t.Setenv(agentSecretName, agentSecretValue)
	s := &suite{T: t, Target: target, tmp: tmp}
	s.host = s.load(nil)
	return s
}

// with is the suite for a subtest.
func (s *suite) with(t *testing.T) *suite {
	sub := *s
	sub.T = t
	return &sub
}

// check runs one item of the checklist.
func (s *suite) check(name string, f func(s *suite)) {
	s.Run(name, func(t *testing.T) { f(s.with(t)) })
}

func (s *suite) options(reattach *host.Reattach) host.Options {
	return host.Options{
		Path: s.Binary, Args: s.Args, Config: s.PluginConfig, Reattach: reattach,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: testWriter{s.T}}),
	}
}

// load makes a host that is closed with the test.
func (s *suite) load(reattach *host.Reattach) *host.Host {
	s.Helper()
	h, err := host.Load(s.soon(), s.options(reattach))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.Errorf("close host: %v", err)
		}
	})
	return h
}

func (s *suite) instance(h *host.Host) *host.Instance {
	s.Helper()
	i, err := h.Instance(s.soon())
	s.must(err)
	return i
}

// soon is a context for what must not take long.
func (s *suite) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// within fails unless f is done in time.
func (s *suite) within(limit time.Duration, what string, f func()) {
	s.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		s.Errorf("%s took %v: want at most %v", what, took.Round(time.Millisecond), limit)
	}
}

// eventually waits for a state of the machine that has no event to wait for.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			s.Fatalf("still not: %s", what)
		case <-tick.C:
		}
	}
}

// gone waits until no process of the mark is left.
func (s *suite) gone(mark string) {
	s.Helper()
	s.eventually("processes of the task gone", func() bool { return len(marked(mark)) == 0 })
}

// unchanged compares the driver's traces before and after.
func (s *suite) unchanged(before []string) {
	s.Helper()
	if s.Traces == nil {
		return
	}
	want := strings.Join(before, "\n")
	var got string
	deadline := time.Now().Add(patience)
	for ; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = strings.Join(s.Traces(s), "\n"); got == want {
			return
		}
	}
	s.Errorf("left behind:\n%s\nbefore:\n%s", got, want)
}

func (s *suite) traces() []string {
	if s.Traces == nil {
		return nil
	}
	return s.Traces(s)
}

func (s *suite) instances(mark string) int {
	processes := marked(mark)
	if s.Instances != nil {
		return s.Instances(s, processes)
	}
	return roots(processes)
}

// inspect reports the driver's view of a task.
func (s *suite) inspect(i *host.Instance, id nomadplugin.TaskID) *nomadplugin.TaskInspection {
	s.Helper()
	inspection, err := i.InspectTask(s.soon(), id)
	s.must(err)
	return inspection
}

func (s *suite) kill(inspection *nomadplugin.TaskInspection) {
	s.Helper()
	if s.Kill != nil {
		s.Kill(s, inspection)
		return
	}
	pid, err := strconv.Atoi(inspection.GetDriver().GetAttributes()["pid"])
	if err != nil || pid < 2 {
		s.Skipf("the driver reports no pid and the target has no Kill")
	}
	s.must(syscall.Kill(pid, syscall.SIGKILL))
}

// alloc is what an agent prepares for one task: directories, logs with a reader, environment.
type alloc struct {
	id, mark string
	dir      string
	stdout   *logReader
	stderr   *logReader
}

// newAlloc makes the directories of a fresh allocation, in the agent's layout and modes.
func (s *suite) newAlloc() *alloc {
	s.Helper()
	a := &alloc{id: uuid(), mark: "conformance-" + uuid()}
	root, err := os.MkdirTemp("", "np-alloc")
	s.must(err)
	s.Cleanup(func() { _ = os.RemoveAll(root) })
	s.must(os.Chmod(root, 0o755))
	a.dir = filepath.Join(root, a.id)
	for path, mode := range map[string]os.FileMode{
		"": 0o755, "alloc": 0o777, "alloc/data": 0o777, "alloc/logs": 0o777, "alloc/tmp": 0o777,
		taskName: 0o777, taskName + "/local": 0o777, taskName + "/secrets": 0o777,
		taskName + "/private": 0o777, taskName + "/tmp": 0o777 | os.ModeSticky,
	} {
		full := filepath.Join(a.dir, path)
		s.must(os.MkdirAll(full, 0o755))
		s.must(os.Chmod(full, mode))
	}
	a.stdout, a.stderr = s.newLog(a, "stdout"), s.newLog(a, "stderr")
	s.Cleanup(func() {
		for _, process := range marked(a.mark) {
			s.Errorf("process left behind: %d %s", process.PID, process.Command)
			_ = syscall.Kill(process.PID, syscall.SIGKILL)
		}
	})
	return a
}

const taskName = "screen"

func (a *alloc) fifo(stream string) string {
	return filepath.Join(a.dir, "alloc", "logs", "."+taskName+"."+stream+".fifo")
}

// task is the configuration of the next run of the allocation's task.
func (s *suite) task(h *host.Host, a *alloc, config Config) *nomadplugin.TaskConfig {
	s.Helper()
	env := map[string]string{
		"CONFORMANCE_MARK": a.mark,
		"NOMAD_ALLOC_DIR":  filepath.Join(a.dir, "alloc"), "NOMAD_TASK_DIR": filepath.Join(a.dir, taskName, "local"),
		"NOMAD_SECRETS_DIR": filepath.Join(a.dir, taskName, "secrets"),
		"NOMAD_ALLOC_ID":    a.id, "NOMAD_SHORT_ALLOC_ID": a.id[:8], "NOMAD_ALLOC_INDEX": "0", "NOMAD_ALLOC_NAME": "conformance.g[0]",
		"NOMAD_TASK_NAME": taskName, "NOMAD_GROUP_NAME": "g", "NOMAD_JOB_ID": "conformance", "NOMAD_JOB_NAME": "conformance",
		"NOMAD_DC": "dc1", "NOMAD_NAMESPACE": "default", "NOMAD_REGION": "global", "NOMAD_CPU_LIMIT": "500",
		// A single blank is what agents send when no cores are reserved.
		"NOMAD_CPU_CORES": " ", "NOMAD_MEMORY_LIMIT": "2048", "PATH": os.Getenv("PATH"),
	}
	for name, value := range s.Env {
		env[name] = value
	}
	schema, err := s.instance(h).TaskConfigSchema(s.soon())
	s.must(err)
	encoded, err := schema.Encode(config, hclconfig.Variables{Env: env})
	s.must(err)
	return &nomadplugin.TaskConfig{
		Id: string(host.NewTaskID(a.id, taskName)), Name: taskName, AllocId: a.id, AllocDir: a.dir,
		TaskGroupName: "g", JobName: "conformance", JobId: "conformance", Namespace: "default",
		NodeName: "local", NodeId: uuid(), MsgpackDriverConfig: encoded, Env: env,
		StdoutPath: a.fifo("stdout"), StderrPath: a.fifo("stderr"),
		Resources: &driverpb.Resources{
			AllocatedResources: &driverpb.AllocatedTaskResources{
				Cpu:    &driverpb.AllocatedCpuResources{CpuShares: 500},
				Memory: &driverpb.AllocatedMemoryResources{MemoryMb: 2048},
			},
			// A cgroup that does not exist, as on an agent that manages none (C77).
			LinuxResources: &driverpb.LinuxResources{CpuShares: 500, MemoryLimitBytes: 2048 << 20, PercentTicks: 0.1,
				CpusetCgroup: "/sys/fs/cgroup/conformance-is-not-there"},
		},
	}
}

type running struct {
	*alloc
	id     nomadplugin.TaskID
	config *nomadplugin.TaskConfig
	handle *nomadplugin.TaskHandle
	on     *host.Instance
}

// start runs a task on an instance and destroys it with the test.
func (s *suite) start(h *host.Host, a *alloc, config Config) *running {
	s.Helper()
	return s.startConfig(h, a, s.task(h, a, config))
}

func (s *suite) startConfig(h *host.Host, a *alloc, config *nomadplugin.TaskConfig) *running {
	s.Helper()
	i := s.instance(h)
	handle, _, err := i.StartTask(s.soon(), config)
	if err != nil {
		s.Fatalf("start task: %v\n%s%s", err, a.stdout.text(), a.stderr.text())
	}
	r := &running{alloc: a, id: nomadplugin.TaskID(config.GetId()), config: config, handle: handle, on: i}
	s.Cleanup(func() { s.destroy(h, r.id) })
	return r
}

// destroy ends a task on whatever instance is there; a task that is gone is fine.
func (s *suite) destroy(h *host.Host, id nomadplugin.TaskID) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	i, err := h.Instance(ctx)
	if err != nil {
		return
	}
	if err := i.DestroyTask(ctx, id, true); err != nil && !errors.Is(err, nomadplugin.ErrTaskNotFound) {
		s.Errorf("destroy task: %v", err)
	}
}

// wait returns how the task ended.
func (s *suite) wait(i *host.Instance, id nomadplugin.TaskID) *nomadplugin.ExitResult {
	s.Helper()
	result, err := i.WaitTask(s.soon(), id)
	if result == nil {
		s.Fatalf("wait for task: %v", err)
	}
	return result
}

// testWriter shows the plugin's log with the test. A line after the end of the test is dropped.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if testing.Verbose() && w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

var _ io.Writer = testWriter{}
