// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// shellDriver runs shell commands as tasks. It is a complete driver: a shim process per task is the
// task's parent and outlives the plugin.
type shellDriver struct {
	logger hclog.Logger
	events chan *nomadplugin.TaskEvent

	mu       sync.Mutex // guards stateDir and tasks
	stateDir string
	tasks    map[nomadplugin.TaskID]*shellTask
}

func newShellDriver(logger hclog.Logger) *shellDriver {
	return &shellDriver{
		logger: logger, events: make(chan *nomadplugin.TaskEvent, 16),
		stateDir: os.TempDir(), tasks: map[nomadplugin.TaskID]*shellTask{},
	}
}

func (d *shellDriver) Info() nomadplugin.Info {
	return nomadplugin.Info{Name: "shell", Version: "0.1.0"}
}

func (d *shellDriver) ConfigSchema() *nomadplugin.Spec {
	return hclspec.Object(hclspec.Fields{
		"state_dir": hclspec.Attr("state_dir", "string"),
		"limit":     hclspec.Default(hclspec.Attr("limit", "number"), hclspec.Int(100)),
	})
}

func (d *shellDriver) SetConfig(_ context.Context, req *nomadplugin.SetConfigRequest) error {
	config := struct {
		StateDir string `codec:"state_dir"`
		Limit    int    `codec:"limit"`
	}{Limit: 100}
	if err := nomadplugin.DecodeConfig(req.GetMsgpackConfig(), &config); err != nil {
		return err
	}
	if config.Limit < 1 {
		return fmt.Errorf("limit: %d: want at least 1", config.Limit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if config.StateDir != "" {
		d.stateDir = config.StateDir
	}
	return nil
}

func (d *shellDriver) Init(context.Context) error     { d.logger.Debug("init"); return nil }
func (d *shellDriver) Shutdown(context.Context) error { d.logger.Info("shutdown"); return nil }

func (d *shellDriver) TaskConfigSchema() *nomadplugin.Spec {
	return hclspec.Object(hclspec.Fields{
		"command": hclspec.RequiredAttr("command", "string"),
		"print":   hclspec.Default(hclspec.Attr("print", "bool"), hclspec.Bool(false)),
	})
}

func (d *shellDriver) Capabilities() *nomadplugin.Capabilities {
	return &nomadplugin.Capabilities{SendSignals: true, Exec: true, MountConfigs: driverpb.DriverCapabilities_NO_MOUNTS}
}

// Fingerprint looks at a file by which tests make the driver ill.
func (d *shellDriver) Fingerprint(ctx context.Context, send func(*nomadplugin.Fingerprint) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last string
	for {
		d.mu.Lock()
		reason, _ := os.ReadFile(filepath.Join(d.stateDir, "ill"))
		d.mu.Unlock()
		f := &nomadplugin.Fingerprint{Health: nomadplugin.Healthy, HealthDescription: "Healthy",
			Attributes: map[string]*nomadplugin.Attribute{"driver.shell.cores": nomadplugin.IntAttribute(2, ""), "driver.shell.nil": nil}}
		if len(reason) > 0 {
			f.Health, f.HealthDescription = nomadplugin.Unhealthy, string(reason)
		}
		if f.HealthDescription != last {
			if err := send(f); err != nil {
				return err
			}
			last = f.HealthDescription
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (d *shellDriver) TaskEvents(ctx context.Context, send func(*nomadplugin.TaskEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-d.events:
			if err := send(event); err != nil {
				return err
			}
		}
	}
}

func (d *shellDriver) emit(task *nomadplugin.TaskConfig, message string) {
	select {
	case d.events <- &nomadplugin.TaskEvent{TaskId: task.GetId(), AllocId: task.GetAllocId(), TaskName: task.GetName(), Message: message}:
	default:
	}
}

func (d *shellDriver) task(id nomadplugin.TaskID) (*shellTask, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	task, ok := d.tasks[id]
	if !ok {
		return nil, nomadplugin.ErrTaskNotFound
	}
	return task, nil
}

func (d *shellDriver) StartTask(_ context.Context, config *nomadplugin.TaskConfig) (*nomadplugin.TaskHandle, *nomadplugin.NetworkOverride, error) {
	var options struct {
		Command string `codec:"command"`
		Print   bool   `codec:"print"`
	}
	if err := nomadplugin.DecodeConfig(config.GetMsgpackDriverConfig(), &options); err != nil {
		return nil, nil, err
	}
	if options.Print {
		// More than a pipe holds: without the SDK's care this blocks the driver for good.
		fmt.Println(strings.Repeat("stray output ", 20_000))
		d.logger.Info(strings.Repeat("long ", 20_000))
	}
	if _, err := d.task(nomadplugin.TaskID(config.GetId())); err == nil {
		return nil, nil, nomadplugin.AlreadyStarted(nomadplugin.TaskID(config.GetId()))
	}
	task, err := startShell(d.dir(config), config, options.Command)
	if err != nil {
		return nil, nil, err
	}
	state, err := json.Marshal(task.identity)
	if err != nil {
		return nil, nil, errors.Join(err, task.kill())
	}
	d.add(task)
	d.emit(config, "started")
	return &nomadplugin.TaskHandle{Version: 1, Config: config, DriverState: state}, nil, nil
}

func (d *shellDriver) dir(config *nomadplugin.TaskConfig) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return filepath.Join(d.stateDir, config.GetAllocId()+"."+config.GetName())
}

func (d *shellDriver) add(task *shellTask) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks[nomadplugin.TaskID(task.config.GetId())] = task
}

func (d *shellDriver) RecoverTask(_ context.Context, handle *nomadplugin.TaskHandle) error {
	if _, err := d.task(nomadplugin.TaskID(handle.GetConfig().GetId())); err == nil {
		return nil
	}
	var identity shimIdentity
	if handle.GetVersion() != 1 {
		return fmt.Errorf("handle version %d: want 1", handle.GetVersion())
	}
	if err := json.Unmarshal(handle.GetDriverState(), &identity); err != nil {
		return fmt.Errorf("read driver state: %w", err)
	}
	task, err := recoverShell(identity, handle.GetConfig())
	if err != nil {
		return err
	}
	d.add(task)
	return nil
}

func (d *shellDriver) WaitTask(ctx context.Context, id nomadplugin.TaskID) (*nomadplugin.ExitResult, error) {
	task, err := d.task(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-task.done:
		return task.result()
	}
}

func (d *shellDriver) StopTask(ctx context.Context, id nomadplugin.TaskID, timeout time.Duration, name string) error {
	task, err := d.task(id)
	if err != nil {
		return err
	}
	if name == "" {
		name = "SIGTERM"
	}
	sig, err := signalByName(name)
	if err != nil {
		return err
	}
	if timeout > 0 && task.signal(sig) == nil {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-task.done:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return task.kill()
}

func (d *shellDriver) DestroyTask(_ context.Context, id nomadplugin.TaskID, force bool) error {
	task, err := d.task(id)
	if err != nil {
		return err
	}
	if task.running() && !force {
		return nomadplugin.ErrTaskRunning
	}
	if err := task.kill(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tasks, id)
	return os.RemoveAll(task.identity.Dir)
}

func (d *shellDriver) InspectTask(_ context.Context, id nomadplugin.TaskID) (*nomadplugin.TaskInspection, error) {
	task, err := d.task(id)
	if err != nil {
		return nil, err
	}
	status := &nomadplugin.TaskStatus{Name: task.config.GetName(), State: driverpb.TaskState_RUNNING, StartedAt: timestamppb.New(task.identity.Started)}
	if !task.running() {
		status.State = driverpb.TaskState_EXITED
		status.Result, _ = task.result()
		status.CompletedAt = timestamppb.Now()
	}
	return &nomadplugin.TaskInspection{Task: status, Driver: &driverpb.TaskDriverStatus{
		Attributes: map[string]string{"pid": strconv.Itoa(task.identity.Lead)}}}, nil
}

func (d *shellDriver) TaskStats(ctx context.Context, id nomadplugin.TaskID, interval time.Duration, send func(*nomadplugin.TaskStats) error) error {
	task, err := d.task(id)
	if err != nil {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		usage := &driverpb.TaskResourceUsage{Memory: &driverpb.MemoryUsage{
			Rss: rss(task.identity.Lead), MeasuredFields: []driverpb.MemoryUsage_Fields{driverpb.MemoryUsage_RSS}}}
		if err := send(&nomadplugin.TaskStats{AggResourceUsage: usage}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-task.done:
			return nil
		case <-tick.C:
		}
	}
}

func (d *shellDriver) SignalTask(_ context.Context, id nomadplugin.TaskID, name string) error {
	task, err := d.task(id)
	if err != nil {
		return err
	}
	sig, err := signalByName(name)
	if err != nil {
		return err
	}
	return task.signal(sig)
}

func (d *shellDriver) ExecTask(ctx context.Context, id nomadplugin.TaskID, command []string, timeout time.Duration) (*nomadplugin.ExecResult, error) {
	task, err := d.task(id)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr strings.Builder
	cmd := task.command(ctx, command)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exitErr := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exitErr) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	return &nomadplugin.ExecResult{Stdout: []byte(stdout.String()), Stderr: []byte(stderr.String()), Result: exitResult(cmd.ProcessState)}, nil
}

func (d *shellDriver) ExecTaskStreaming(ctx context.Context, id nomadplugin.TaskID, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	task, err := d.task(id)
	if err != nil {
		return nil, err
	}
	if !task.running() {
		return nil, errors.New("task is not running")
	}
	cmd := task.command(ctx, req.Command)
	if req.TTY {
		return task.execTerminal(cmd, req)
	}
	return task.execPipes(cmd, req)
}
