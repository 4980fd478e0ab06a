// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
)

type baseServer struct {
	basepb.UnimplementedBasePluginServer
	driver Driver
}

func (s *baseServer) PluginInfo(context.Context, *basepb.PluginInfoRequest) (*basepb.PluginInfoResponse, error) {
	info := s.driver.Info()
	return &basepb.PluginInfoResponse{
		Type:              basepb.PluginType_DRIVER,
		PluginApiVersions: []string{APIVersion},
		PluginVersion:     info.Version,
		Name:              info.Name,
	}, nil
}

func (s *baseServer) ConfigSchema(context.Context, *basepb.ConfigSchemaRequest) (*basepb.ConfigSchemaResponse, error) {
	return &basepb.ConfigSchemaResponse{Spec: someSpec(s.driver.ConfigSchema())}, nil
}

func (s *baseServer) SetConfig(ctx context.Context, req *basepb.SetConfigRequest) (*basepb.SetConfigResponse, error) {
	if err := s.driver.SetConfig(ctx, req); err != nil {
		return nil, wireError(ctx, err)
	}
	return &basepb.SetConfigResponse{}, nil
}

// someSpec is the empty object for no schema: without one an agent refuses even an empty block.
func someSpec(spec *Spec) *Spec {
	if spec.GetBlock() == nil {
		return &Spec{Block: &hclspecpb.Spec_Object{Object: &hclspecpb.Object{}}}
	}
	return spec
}

type driverServer struct {
	driverpb.UnimplementedDriverServer
	driver Driver
	logger hclog.Logger
}

func (s *driverServer) Init(ctx context.Context, _ *driverpb.InitRequest) (*driverpb.InitResponse, error) {
	if err := s.driver.Init(ctx); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.InitResponse{}, nil
}

func (s *driverServer) Shutdown(ctx context.Context, _ *driverpb.ShutdownRequest) (*driverpb.ShutdownResponse, error) {
	if err := s.driver.Shutdown(ctx); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.ShutdownResponse{}, nil
}

func (s *driverServer) TaskConfigSchema(context.Context, *driverpb.TaskConfigSchemaRequest) (*driverpb.TaskConfigSchemaResponse, error) {
	return &driverpb.TaskConfigSchemaResponse{Spec: someSpec(s.driver.TaskConfigSchema())}, nil
}

func (s *driverServer) Capabilities(context.Context, *driverpb.CapabilitiesRequest) (*driverpb.CapabilitiesResponse, error) {
	capabilities := s.driver.Capabilities()
	if capabilities == nil {
		capabilities = &Capabilities{}
	}
	return &driverpb.CapabilitiesResponse{Capabilities: capabilities}, nil
}

func (s *driverServer) StartTask(ctx context.Context, req *driverpb.StartTaskRequest) (*driverpb.StartTaskResponse, error) {
	if req.GetTask().GetId() == "" {
		return nil, wireError(ctx, errors.New("start task: the request has no task id"))
	}
	handle, network, err := s.driver.StartTask(ctx, req.Task)
	if err != nil {
		return nil, wireError(ctx, err)
	}
	if handle, err = completeHandle(handle, req.Task); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.StartTaskResponse{Handle: handle, NetworkOverride: network}, nil
}

func (s *driverServer) RecoverTask(ctx context.Context, req *driverpb.RecoverTaskRequest) (*driverpb.RecoverTaskResponse, error) {
	handle := req.GetHandle()
	switch {
	case handle.GetConfig().GetId() == "":
		return nil, wireError(ctx, errors.New("recover task: the handle names no task"))
	case handle.GetVersion() < 1:
		return nil, wireError(ctx, fmt.Errorf("recover task %s: handle version %d is unknown", handle.Config.Id, handle.GetVersion()))
	}
	if err := s.driver.RecoverTask(ctx, handle); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.RecoverTaskResponse{}, nil
}

func (s *driverServer) WaitTask(ctx context.Context, req *driverpb.WaitTaskRequest) (*driverpb.WaitTaskResponse, error) {
	result, err := s.driver.WaitTask(ctx, TaskID(req.GetTaskId()))
	switch {
	case result != nil && err != nil:
		text, _ := validText(errorText(err))
		return &driverpb.WaitTaskResponse{Result: result, Err: text}, nil
	case err != nil:
		return nil, wireError(ctx, err)
	case result == nil:
		return nil, wireError(ctx, errNoResult)
	}
	return &driverpb.WaitTaskResponse{Result: result}, nil
}

func (s *driverServer) StopTask(ctx context.Context, req *driverpb.StopTaskRequest) (*driverpb.StopTaskResponse, error) {
	err := s.driver.StopTask(ctx, TaskID(req.GetTaskId()), duration(req.GetTimeout()), req.GetSignal())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.StopTaskResponse{}, nil
}

func (s *driverServer) DestroyTask(ctx context.Context, req *driverpb.DestroyTaskRequest) (*driverpb.DestroyTaskResponse, error) {
	if err := s.driver.DestroyTask(ctx, TaskID(req.GetTaskId()), req.GetForce()); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.DestroyTaskResponse{}, nil
}

func (s *driverServer) InspectTask(ctx context.Context, req *driverpb.InspectTaskRequest) (*driverpb.InspectTaskResponse, error) {
	id := TaskID(req.GetTaskId())
	inspection, err := s.driver.InspectTask(ctx, id)
	if err == nil {
		inspection, err = completeInspection(inspection, id)
	}
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return inspection, nil
}

func (s *driverServer) SignalTask(ctx context.Context, req *driverpb.SignalTaskRequest) (*driverpb.SignalTaskResponse, error) {
	err := s.driver.SignalTask(ctx, TaskID(req.GetTaskId()), req.GetSignal())
	if err != nil {
		return nil, unsupported(ctx, err, "SignalTask is not supported by this driver")
	}
	return &driverpb.SignalTaskResponse{}, nil
}

func (s *driverServer) ExecTask(ctx context.Context, req *driverpb.ExecTaskRequest) (*driverpb.ExecTaskResponse, error) {
	if len(req.GetCommand()) == 0 {
		return nil, wireError(ctx, errNoCommand)
	}
	result, err := s.driver.ExecTask(ctx, TaskID(req.GetTaskId()), req.GetCommand(), duration(req.GetTimeout()))
	if err == nil {
		result, err = completeExec(result)
	}
	if err != nil {
		return nil, unsupported(ctx, err, "ExecTask is not supported by this driver")
	}
	return result, nil
}

func (s *driverServer) CreateNetwork(ctx context.Context, req *driverpb.CreateNetworkRequest) (*driverpb.CreateNetworkResponse, error) {
	manager, ok := s.driver.(NetworkManager)
	if !ok {
		return nil, unsupported(ctx, ErrNotSupported, "CreateNetwork RPC not supported by driver")
	}
	spec, created, err := manager.CreateNetwork(ctx, req.GetAllocId(), req.GetHostname())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.CreateNetworkResponse{IsolationSpec: spec, Created: created}, nil
}

func (s *driverServer) DestroyNetwork(ctx context.Context, req *driverpb.DestroyNetworkRequest) (*driverpb.DestroyNetworkResponse, error) {
	manager, ok := s.driver.(NetworkManager)
	if !ok {
		return nil, unsupported(ctx, ErrNotSupported, "DestroyNetwork RPC not supported by driver")
	}
	if err := manager.DestroyNetwork(ctx, req.GetAllocId(), req.GetIsolationSpec()); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.DestroyNetworkResponse{}, nil
}

var errNoCommand = errors.New("exec: the command is empty")

// unsupported gives ErrNotSupported the text that is known for the call.
func unsupported(ctx context.Context, err error, text string) error {
	if errors.Is(err, ErrNotSupported) {
		err = errors.New(text)
	}
	return wireError(ctx, err)
}

// duration is 0 for an absent or negative one.
func duration(d *durationpb.Duration) time.Duration { return max(0, d.AsDuration()) }
