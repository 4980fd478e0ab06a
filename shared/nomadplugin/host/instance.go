// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// Instance is one process of a plugin. Its methods are single calls: an error of the plugin is a
// *CallError, the death of the process ErrShutdown, the end of the caller's context that context's
// error. A message without something that it must have is an error too.
type Instance struct {
	proc       *process
	reattached bool
	// ctx ends every call when the host lets the process go.
	ctx    context.Context
	cancel context.CancelFunc
}

func newInstance(p *process, reattached bool) *Instance {
	ctx, cancel := context.WithCancel(context.Background())
	return &Instance{proc: p, reattached: reattached, ctx: ctx, cancel: cancel}
}

// PID of the process.
func (i *Instance) PID() int { return i.proc.pid }

// Reattached says that the process was not started by this host.
func (i *Instance) Reattached() bool { return i.reattached }

// Exited is closed when the process is gone.
func (i *Instance) Exited() <-chan struct{} { return i.proc.exited.Done() }

// PluginInfo is the plugin's own description.
func (i *Instance) PluginInfo(ctx context.Context) (*basepb.PluginInfoResponse, error) {
	return unary(ctx, i, "PluginInfo", i.proc.base.PluginInfo, &basepb.PluginInfoRequest{})
}

// SetConfig sends a configuration.
func (i *Instance) SetConfig(ctx context.Context, req *nomadplugin.SetConfigRequest) error {
	_, err := unary(ctx, i, "SetConfig", i.proc.base.SetConfig, req)
	return err
}

// Init lets the driver start up; a plugin older than the call is fine.
func (i *Instance) Init(ctx context.Context) error {
	_, err := unary(ctx, i, "Init", i.proc.driver.Init, &driverpb.InitRequest{})
	return implemented(err)
}

// Shutdown announces the end of the process; a plugin older than the call is fine.
func (i *Instance) Shutdown(ctx context.Context) error {
	_, err := unary(ctx, i, "Shutdown", i.proc.driver.Shutdown, &driverpb.ShutdownRequest{})
	return implemented(err)
}

func implemented(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}

// TaskConfigSchema is the driver's schema, ready to encode a task's configuration.
func (i *Instance) TaskConfigSchema(ctx context.Context) (*hclconfig.Schema, error) {
	resp, err := unary(ctx, i, "TaskConfigSchema", i.proc.driver.TaskConfigSchema, &driverpb.TaskConfigSchemaRequest{})
	if err != nil {
		return nil, err
	}
	return hclconfig.NewSchema(resp.GetSpec())
}

// Capabilities are all defaults where the plugin sends none.
func (i *Instance) Capabilities(ctx context.Context) (*nomadplugin.Capabilities, error) {
	resp, err := unary(ctx, i, "Capabilities", i.proc.driver.Capabilities, &driverpb.CapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	if resp.GetCapabilities() == nil {
		return &nomadplugin.Capabilities{}, nil
	}
	return resp.GetCapabilities(), nil
}

// StartTask starts a task. The result field of the answer means nothing, as for an agent.
func (i *Instance) StartTask(ctx context.Context, task *nomadplugin.TaskConfig) (*nomadplugin.TaskHandle, *nomadplugin.NetworkOverride, error) {
	resp, err := unary(ctx, i, "StartTask", i.proc.driver.StartTask, &driverpb.StartTaskRequest{Task: task})
	if err != nil {
		return nil, nil, err
	}
	if id := resp.GetHandle().GetConfig().GetId(); id != task.GetId() {
		return nil, nil, malformed("StartTask", fmt.Sprintf("the handle is for task %q: want %q", id, task.GetId()))
	}
	return resp.GetHandle(), resp.GetNetworkOverride(), nil
}

// RecoverTask hands a task of an earlier process over. The id travels in the handle only.
func (i *Instance) RecoverTask(ctx context.Context, handle *nomadplugin.TaskHandle) error {
	_, err := unary(ctx, i, "RecoverTask", i.proc.driver.RecoverTask, &driverpb.RecoverTaskRequest{Handle: handle})
	return err
}

// WaitTask blocks until the task has ended. With a result an error is trouble of the driver's that
// makes the exit a failure; without one it is the call that failed.
func (i *Instance) WaitTask(ctx context.Context, id nomadplugin.TaskID) (*nomadplugin.ExitResult, error) {
	resp, err := unary(ctx, i, "WaitTask", i.proc.driver.WaitTask, &driverpb.WaitTaskRequest{TaskId: string(id)})
	switch {
	case err != nil:
		return nil, err
	case resp.GetResult() == nil:
		return nil, malformed("WaitTask", "no exit result")
	case resp.GetErr() != "":
		return resp.GetResult(), errors.New(resp.GetErr())
	}
	return resp.GetResult(), nil
}

// StopTask stops a task within the timeout.
func (i *Instance) StopTask(ctx context.Context, id nomadplugin.TaskID, timeout time.Duration, signal string) error {
	_, err := unary(ctx, i, "StopTask", i.proc.driver.StopTask,
		&driverpb.StopTaskRequest{TaskId: string(id), Timeout: durationpb.New(timeout), Signal: signal})
	return err
}

// DestroyTask forgets a task.
func (i *Instance) DestroyTask(ctx context.Context, id nomadplugin.TaskID, force bool) error {
	_, err := unary(ctx, i, "DestroyTask", i.proc.driver.DestroyTask,
		&driverpb.DestroyTaskRequest{TaskId: string(id), Force: force})
	return err
}

// InspectTask reports the state of a task. Times that are not known are the zero time.
func (i *Instance) InspectTask(ctx context.Context, id nomadplugin.TaskID) (*nomadplugin.TaskInspection, error) {
	resp, err := unary(ctx, i, "InspectTask", i.proc.driver.InspectTask, &driverpb.InspectTaskRequest{TaskId: string(id)})
	if err != nil {
		return nil, err
	}
	task := resp.GetTask()
	switch {
	case task == nil:
		return nil, malformed("InspectTask", "no task")
	case task.GetResult() == nil:
		return nil, malformed("InspectTask", "no exit result")
	case task.GetStartedAt().CheckValid() != nil, task.GetCompletedAt().CheckValid() != nil:
		return nil, malformed("InspectTask", "no valid times")
	}
	return resp, nil
}

// SignalTask sends a signal, by the name as written.
func (i *Instance) SignalTask(ctx context.Context, id nomadplugin.TaskID, signal string) error {
	_, err := unary(ctx, i, "SignalTask", i.proc.driver.SignalTask,
		&driverpb.SignalTaskRequest{TaskId: string(id), Signal: signal})
	return err
}

// ExecTask runs a command and collects its output.
func (i *Instance) ExecTask(ctx context.Context, id nomadplugin.TaskID, command []string, timeout time.Duration) (*nomadplugin.ExecResult, error) {
	resp, err := unary(ctx, i, "ExecTask", i.proc.driver.ExecTask,
		&driverpb.ExecTaskRequest{TaskId: string(id), Command: command, Timeout: durationpb.New(timeout)})
	if err != nil {
		return nil, err
	}
	if resp.GetResult() == nil {
		return nil, malformed("ExecTask", "no exit result")
	}
	return resp, nil
}

// CreateNetwork makes the network namespace of an allocation; a nil spec means nothing to join.
func (i *Instance) CreateNetwork(ctx context.Context, allocID, hostname string) (*nomadplugin.NetworkIsolation, bool, error) {
	resp, err := unary(ctx, i, "CreateNetwork", i.proc.driver.CreateNetwork,
		&driverpb.CreateNetworkRequest{AllocId: allocID, Hostname: hostname})
	return resp.GetIsolationSpec(), resp.GetCreated(), err
}

// DestroyNetwork removes what CreateNetwork made.
func (i *Instance) DestroyNetwork(ctx context.Context, allocID string, spec *nomadplugin.NetworkIsolation) error {
	_, err := unary(ctx, i, "DestroyNetwork", i.proc.driver.DestroyNetwork,
		&driverpb.DestroyNetworkRequest{AllocId: allocID, IsolationSpec: spec})
	return err
}

// malformed is an answer that a Nomad agent might crash on.
func malformed(call, what string) error {
	return fmt.Errorf("%s: malformed answer of the plugin: %s", call, what)
}
