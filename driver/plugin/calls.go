// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/screen"
)

// maxThreads is pids.max of a screen: the desktop alone has about 44 threads, one
// browser tab over 200 (P6).
const maxThreads = 2048

// StartTask brings a screen up and returns when it is ready.
func (d *Driver) StartTask(ctx context.Context, config *nomadplugin.TaskConfig) (*nomadplugin.TaskHandle, *nomadplugin.NetworkOverride, error) {
	manager, err := d.tasks()
	if err != nil {
		return nil, nil, err
	}
	request, err := taskRequest(config)
	if err != nil {
		return nil, nil, errors.New(task.Explain(err))
	}
	defer func() { go d.giveBack() }()
	t, err := manager.Start(ctx, request)
	if err != nil {
		d.log.Info("screen not started", "task_id", config.GetId(), "profile", string(request.Spec.Profile), "error", err)
		text := errors.New(task.Explain(err))
		if task.Transient(err) {
			return nil, nil, nomadplugin.Recoverable(text)
		}
		return nil, nil, text
	}
	state, err := t.State()
	if err != nil {
		return nil, nil, fmt.Errorf("describe task: %w", err)
	}
	return &nomadplugin.TaskHandle{
		Version: handleVersion, Config: config, State: driverpb.TaskState_RUNNING, DriverState: state,
	}, nil, nil
}

// taskRequest decodes and validates everything before anything starts. The error is a
// screen.Faults where the job is to blame.
func taskRequest(config *nomadplugin.TaskConfig) (task.Request, error) {
	job := defaultJob()
	if err := nomadplugin.DecodeConfig(config.GetMsgpackDriverConfig(), &job); err != nil {
		return task.Request{}, err
	}
	spec, err := job.config().Validate()
	if err != nil {
		return task.Request{}, err
	}
	taskDir := filepath.Join(config.GetAllocDir(), config.GetName())
	namespace := config.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	request := task.Request{
		TaskID: task.ID(config.GetId()), AllocID: config.GetAllocId(), TaskName: config.GetName(),
		JobID: config.GetJobId(), Namespace: namespace, User: config.GetUser(), Spec: spec, Env: config.GetEnv(),
		AllocDir:   config.GetAllocDir(),
		StdoutPath: config.GetStdoutPath(), StderrPath: config.GetStderrPath(),
		Limits:           limits(config.GetResources()),
		JoinCgroups:      nomadGroups(config.GetResources().GetLinuxResources().GetCpusetCgroup()),
		NetworkNamespace: config.GetNetworkIsolationSpec().GetPath(),
	}
	if request.ViewerAddress, err = viewerAddress(spec.Viewer, config.GetResources().GetPorts()); err != nil {
		return task.Request{}, err
	}
	if config.GetAllocDir() != "" {
		request.SecretDirs = []string{filepath.Join(taskDir, "secrets"), filepath.Join(taskDir, "private")}
	}
	return request, nil
}

// viewerAddress is where Nomad put the port of the viewer listener. The supervisor
// listens on the node, in no network namespace of the alloc.
func viewerAddress(v *screen.ViewerListener, ports []*driverpb.PortMapping) (netip.AddrPort, error) {
	if v == nil {
		return netip.AddrPort{}, nil
	}
	var faults screen.Faults
	for _, p := range ports {
		if p.GetLabel() != v.Port {
			continue
		}
		ip, err := netip.ParseAddr(p.GetHostIp())
		if err != nil || p.GetValue() < 1 || p.GetValue() > math.MaxUint16 {
			faults.Add("viewer.port", v.Port, fmt.Sprintf("has no address on this node (%q, port %d)", p.GetHostIp(), p.GetValue()))
			return netip.AddrPort{}, faults.Err()
		}
		at := netip.AddrPortFrom(ip, uint16(p.GetValue()))
		return at, task.CheckViewerAddress(v, at)
	}
	faults.Add("viewer.port", v.Port, "is not the label of a port in the group's network block")
	return netip.AddrPort{}, faults.Err()
}

// limits is the cgroup's share of the task's resources. memory_max = -1 means no hard
// limit, never one of -1 MiB or of the reservation (NMD-10).
func limits(r *driverpb.Resources) cgroup.Limits {
	l := cgroup.Limits{PidsMax: maxThreads}
	if shares := r.GetLinuxResources().GetCpuShares(); shares > 0 {
		l.CPUShares = uint64(shares)
	}
	bytes := r.GetLinuxResources().GetMemoryLimitBytes()
	if r.GetAllocatedResources().GetMemory().GetMemoryMaxMb() >= 0 && bytes > 0 {
		l.MemoryBytes = uint64(bytes)
	}
	return l
}

// nomadGroups are the groups Nomad made that a process may be in besides ours: on
// cgroup v1 the cpuset hierarchy is its own, on v2 there is only one place.
func nomadGroups(cpuset string) []string {
	if strings.HasPrefix(cpuset, "/sys/fs/cgroup/cpuset/") {
		return []string{cpuset}
	}
	return nil
}

// RecoverTask takes over a screen of an earlier driver process.
func (d *Driver) RecoverTask(ctx context.Context, handle *nomadplugin.TaskHandle) error {
	if handle.GetVersion() != handleVersion {
		return fmt.Errorf("recover task: handle version %d, this driver reads %d", handle.GetVersion(), handleVersion)
	}
	manager, err := d.tasks()
	if err != nil {
		return err
	}
	id := task.ID(handle.GetConfig().GetId())
	if err := manager.Recover(ctx, id, handle.GetDriverState()); err != nil {
		return err
	}
	if t, err := manager.Get(id); err == nil {
		t.SetRegistryAuth(registryAuthOf(handle.GetConfig()))
	}
	return nil
}

// registryAuthOf is what a task's configuration says; nobody where that cannot be read.
func registryAuthOf(config *nomadplugin.TaskConfig) screen.RegistryAuth {
	job := defaultJob()
	if nomadplugin.DecodeConfig(config.GetMsgpackDriverConfig(), &job) != nil {
		return screen.RegistryAuth{}
	}
	spec, err := job.config().Validate()
	if err != nil {
		return screen.RegistryAuth{}
	}
	return spec.Docker.Auth
}

// WaitTask returns when nothing of the screen is left.
func (d *Driver) WaitTask(ctx context.Context, id nomadplugin.TaskID) (*nomadplugin.ExitResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	exit := t.Exit()
	result := exitMessage(exit)
	// An error makes the end a failure to Nomad, which then starts a batch task again: an
	// idle desktop that ended well is none.
	if exit.Err != "" && (exit.Code != 0 || exit.Signal != 0) {
		return result, errors.New(exit.Err)
	}
	return result, nil
}

func exitMessage(e task.Exit) *nomadplugin.ExitResult {
	return &nomadplugin.ExitResult{ExitCode: int32(e.Code), Signal: int32(e.Signal), OomKilled: e.OOM}
}

// StopTask ends the screen within the job's kill_timeout.
func (d *Driver) StopTask(ctx context.Context, id nomadplugin.TaskID, timeout time.Duration, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	sig := unix.SIGTERM
	if signal != "" {
		if sig, err = parseSignal(signal); err != nil {
			return fmt.Errorf("stop task: %w", err)
		}
	}
	return t.Stop(ctx, timeout, sig)
}

// DestroyTask forgets an ended screen.
func (d *Driver) DestroyTask(ctx context.Context, id nomadplugin.TaskID, force bool) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if err := t.Destroy(ctx, force); errors.Is(err, task.ErrRunning) {
		return nomadplugin.ErrTaskRunning
	} else if err != nil {
		return err
	}
	return nil
}

// InspectTask describes a screen for tools.
func (d *Driver) InspectTask(_ context.Context, id nomadplugin.TaskID) (*nomadplugin.TaskInspection, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	v := t.View()
	status := &nomadplugin.TaskStatus{
		Id: string(v.ID), Name: v.Name, State: driverpb.TaskState_RUNNING,
		StartedAt: timestamppb.New(v.Started), Result: &nomadplugin.ExitResult{},
	}
	if !v.Running {
		exit := t.Exit()
		status.State, status.CompletedAt, status.Result = driverpb.TaskState_EXITED, timestamppb.New(exit.At), exitMessage(exit)
	}
	return &nomadplugin.TaskInspection{
		Task: status,
		Driver: &driverpb.TaskDriverStatus{Attributes: map[string]string{
			"profile":         string(v.Profile),
			"isolation":       string(v.Isolation),
			"display":         fmt.Sprintf(":%d", v.Display),
			"pid":             fmt.Sprint(v.SessionPID), // the screen ends with this process
			"supervisor_pid":  fmt.Sprint(v.SupervisorPID),
			"operator_socket": v.OperatorSocket,
			"uid":             fmt.Sprint(v.Account.UID),
		}},
	}, nil
}

// SignalTask reaches the programs on the desktop.
func (d *Driver) SignalTask(ctx context.Context, id nomadplugin.TaskID, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	sig, err := parseSignal(signal)
	if err != nil {
		return fmt.Errorf("signal task: %w", err)
	}
	return t.Signal(ctx, sig)
}

// parseSignal reads a name as people write it, with or without "SIG".
func parseSignal(name string) (unix.Signal, error) {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("%q is not the name of a signal", name)
}

func eventMessage(e task.Event) *nomadplugin.TaskEvent {
	return &nomadplugin.TaskEvent{
		TaskId: string(e.TaskID), AllocId: e.AllocID, TaskName: e.TaskName,
		Timestamp: timestamppb.New(e.Time), Message: e.Message, Annotations: e.Annotations,
	}
}
