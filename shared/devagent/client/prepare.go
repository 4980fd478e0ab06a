// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/logmon"
	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/taskenv"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// prepare makes directories, log collector and templates of a run.
func (t *taskRunner) prepare(ctx context.Context) error {
	t.emit(eventSetup("Building Task Directory"))
	warning, err := t.dir.Build()
	if warning != "" {
		t.alloc.client.Log.Warn(warning, "alloc", t.alloc.id)
	}
	if err != nil {
		t.emit(eventSetupFailure(err.Error()))
		return err
	}
	if err := t.startLogs(ctx); err != nil {
		t.emit(newEvent(api.TaskSetupFailure, err.Error()))
		return nomadplugin.Recoverable(err)
	}
	return t.templates.render(ctx)
}

// logsOff says whether the job wants no logs.
func logsOff(task *api.Task) bool {
	return task.LogConfig != nil && task.LogConfig.Disabled != nil && *task.LogConfig.Disabled
}

// startLogs makes sure that a collector reads the task's FIFOs.
func (t *taskRunner) startLogs(ctx context.Context) error {
	_, task := t.spec()
	if logsOff(task) {
		return nil
	}
	if p := t.alloc.records.get(t.name).Logmon; p != nil && p.Alive() {
		// A task may have replaced the FIFOs: the collector would read the old ones.
		if err := logmon.CheckFIFOs(t.alloc.dir.Logs(), t.name); err == nil {
			return nil
		}
		t.stopLogs()
	}
	spec := logmon.Spec{
		Dir: t.alloc.dir.Logs(), Task: t.name, MaxFiles: *task.LogConfig.MaxFiles, MaxFileMB: *task.LogConfig.MaxFileSizeMB,
	}
	return logmon.Start(ctx, t.alloc.client.Logmon, spec, func(p logmon.Process) error {
		return t.alloc.records.update(t.name, func(one *record) { one.Logmon = &p })
	})
}

// ensureLogs is startLogs for a task that runs already: without a collector it
// would block on a full pipe.
func (t *taskRunner) ensureLogs(ctx context.Context) {
	if err := t.startLogs(ctx); err != nil {
		t.alloc.client.Log.Error("log collector not started", "alloc", t.alloc.id, "task", t.name, "error", err)
	}
}

// stopLogsTimeout bounds the end of a collector.
const stopLogsTimeout = 5 * time.Second

func (t *taskRunner) stopLogs() {
	p := t.alloc.records.get(t.name).Logmon
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLogsTimeout)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.alloc.client.Log.Warn("log collector not stopped", "alloc", t.alloc.id, "task", t.name, "error", err)
	}
	if err := t.alloc.records.update(t.name, func(one *record) { one.Logmon = nil }); err != nil {
		t.alloc.client.Log.Warn("log collector not recorded", "alloc", t.alloc.id, "task", t.name, "error", err)
	}
}

// env makes the environment of the task.
func (t *taskRunner) env() taskenv.Env {
	a, _ := t.spec()
	return taskenv.Build(taskenv.Input{
		Alloc: a, Task: t.name, Node: t.alloc.client.node(), Region: server.Region,
		Dirs:     taskenv.Dirs{Alloc: t.alloc.dir.Shared(), Local: t.dir.Local(), Secrets: t.dir.Secrets()},
		Host:     t.alloc.client.Host,
		Template: t.templates.env(),
	})
}

// config makes what the driver is told about the run. A fault of the job is the
// event "Failed Validation" and is not recoverable.
func (t *taskRunner) config(ctx context.Context) (*nomadplugin.TaskConfig, *host.Host, error) {
	_, task := t.spec()
	h, err := t.alloc.client.Drivers.Host(task.Driver)
	if err != nil {
		t.emit(eventDriverFailure(err))
		return nil, nil, err
	}
	i, err := h.Instance(ctx)
	if err != nil {
		t.emit(eventDriverFailure(err))
		return nil, nil, nomadplugin.Recoverable(err)
	}
	schema, err := i.TaskConfigSchema(ctx)
	if err != nil {
		t.emit(eventDriverFailure(err))
		return nil, nil, nomadplugin.Recoverable(err)
	}
	env := t.env()
	encoded, err := schema.Encode(task.Config, hclconfig.Variables{Env: env.Vars, Node: env.Node})
	if err != nil {
		err = fmt.Errorf("failed to parse config: %w", err)
		t.emit(eventInvalid(err))
		return nil, nil, err
	}
	return t.taskConfig(env, encoded), h, nil
}

func (t *taskRunner) taskConfig(env taskenv.Env, encoded []byte) *nomadplugin.TaskConfig {
	a, task := t.spec()
	node := t.alloc.client.node()
	t.alloc.mu.Lock()
	isolation := t.alloc.network.spec()
	t.alloc.mu.Unlock()
	config := &nomadplugin.TaskConfig{
		Id:                   string(host.NewTaskID(a.ID, t.name)),
		Name:                 t.name,
		MsgpackDriverConfig:  encoded,
		Env:                  env.Vars,
		Resources:            resources(a, t.name, node),
		User:                 env.Replace(task.User),
		AllocDir:             t.alloc.dir.Dir,
		StdoutPath:           filepath.Join(t.alloc.dir.Logs(), logmon.FIFO(t.name, logmon.Stdout)),
		StderrPath:           filepath.Join(t.alloc.dir.Logs(), logmon.FIFO(t.name, logmon.Stderr)),
		TaskGroupName:        a.TaskGroup,
		JobName:              *a.Job.Name,
		AllocId:              a.ID,
		NetworkIsolationSpec: isolation,
		JobId:                a.JobID,
		Namespace:            a.Namespace,
		NodeName:             node.Name,
		NodeId:               node.ID,
	}
	if logsOff(task) {
		config.StdoutPath, config.StderrPath = "/dev/null", "/dev/null"
	}
	return config
}

func resources(a *api.Allocation, task string, node *api.Node) *driverpb.Resources {
	r := a.AllocatedResources.Tasks[task]
	out := &driverpb.Resources{
		AllocatedResources: &driverpb.AllocatedTaskResources{
			Cpu:    &driverpb.AllocatedCpuResources{CpuShares: r.Cpu.CpuShares},
			Memory: &driverpb.AllocatedMemoryResources{MemoryMb: r.Memory.MemoryMB, MemoryMaxMb: r.Memory.MemoryMaxMB},
		},
		LinuxResources: &driverpb.LinuxResources{
			CpuShares:        r.Cpu.CpuShares,
			MemoryLimitBytes: memoryLimit(r.Memory),
			PercentTicks:     float64(r.Cpu.CpuShares) / float64(max(1, node.NodeResources.Cpu.CpuShares)),
			CpusetCpus:       taskenv.CoreList(r.Cpu.ReservedCores),
		},
	}
	for _, p := range a.AllocatedResources.Shared.Ports {
		out.Ports = append(out.Ports, &driverpb.PortMapping{
			Label: p.Label, Value: int32(p.Value), To: int32(p.To), HostIp: p.HostIP,
		})
	}
	return out
}

// memoryLimit is the hard limit in bytes; 0 is none, which memory_max = -1 asks for
// (NMD-10).
func memoryLimit(m api.AllocatedMemoryResources) int64 {
	if m.MemoryMaxMB < 0 {
		return 0
	}
	return max(m.MemoryMB, m.MemoryMaxMB) << 20
}

var errKilled = errors.New("task was killed")
