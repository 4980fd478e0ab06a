// SPDX-License-Identifier: MPL-2.0

package devagenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// DriverName is what jobs write to get the test driver.
const DriverName = "shelltest"

// driver runs shell commands as tasks that outlive it. It stands for any driver:
// what it knows of a task is in the handle and in files.
type driver struct {
	log    hclog.Logger
	events chan *nomadplugin.TaskEvent

	mu    sync.Mutex // guards the fields below
	dir   string
	tasks map[nomadplugin.TaskID]*task
}

func newDriver(log hclog.Logger) *driver {
	return &driver{log: log, events: make(chan *nomadplugin.TaskEvent, 64), tasks: map[nomadplugin.TaskID]*task{}}
}

func (d *driver) Info() nomadplugin.Info {
	return nomadplugin.Info{Name: DriverName, Version: "0.1.0"}
}

func (d *driver) ConfigSchema() *nomadplugin.Spec {
	return hclspec.Object(hclspec.Fields{"dir": hclspec.RequiredAttr("dir", "string")})
}

func (d *driver) SetConfig(_ context.Context, req *nomadplugin.SetConfigRequest) error {
	var c struct {
		Dir string `codec:"dir"`
	}
	if err := nomadplugin.DecodeConfig(req.GetMsgpackConfig(), &c); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dir = c.Dir
	return nil
}

// taskRoot is the directory of what tasks leave.
func (d *driver) taskRoot() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dir
}

func (d *driver) Init(context.Context) error     { return nil }
func (d *driver) Shutdown(context.Context) error { return nil }

// config is the config block of a task.
type config struct {
	Command string            `codec:"command"`
	Args    []string          `codec:"args"`
	Labels  map[string]string `codec:"labels"`
	// FailStart fails the start: "recoverable" or "fatal". With "dies" the driver dies of the
	// first two, and with them a start and its only repetition.
	FailStart string `codec:"fail_start"`
	// Ready emits an event with state ready after the start.
	Ready bool `codec:"ready"`
}

func (d *driver) TaskConfigSchema() *nomadplugin.Spec {
	return hclspec.Object(hclspec.Fields{
		"command":    hclspec.RequiredAttr("command", "string"),
		"args":       hclspec.Attr("args", "list(string)"),
		"labels":     hclspec.BlockAttrs("labels", "string"),
		"fail_start": hclspec.Attr("fail_start", "string"),
		"ready":      hclspec.Default(hclspec.Attr("ready", "bool"), hclspec.Bool(true)),
	})
}

func (d *driver) Capabilities() *nomadplugin.Capabilities {
	return &nomadplugin.Capabilities{
		SendSignals: true, Exec: true,
		NetworkIsolationModes: []driverpb.NetworkIsolationSpec_NetworkIsolationMode{
			driverpb.NetworkIsolationSpec_HOST, driverpb.NetworkIsolationSpec_GROUP,
		},
	}
}

// Fingerprint is ill while a file "ill" holds a reason, in the driver's directory.
func (d *driver) Fingerprint(ctx context.Context, send func(*nomadplugin.Fingerprint) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		d.mu.Lock()
		reason, _ := os.ReadFile(filepath.Join(d.dir, "ill"))
		d.mu.Unlock()
		f := &nomadplugin.Fingerprint{
			Health: nomadplugin.Healthy, HealthDescription: "Healthy",
			Attributes: map[string]*nomadplugin.Attribute{
				"driver." + DriverName + ".kinds": nomadplugin.StringAttribute("a,b"),
				"driver." + DriverName + ".size":  nomadplugin.IntAttribute(5, "MiB"),
			},
		}
		if len(reason) > 0 {
			f.Health, f.HealthDescription = nomadplugin.Unhealthy, string(reason)
		}
		if f.HealthDescription != last {
			last = f.HealthDescription
			if err := send(f); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (d *driver) TaskEvents(ctx context.Context, send func(*nomadplugin.TaskEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-d.events:
			if err := send(e); err != nil {
				return err
			}
		}
	}
}

func (d *driver) find(id nomadplugin.TaskID) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id]; t != nil {
		return t, nil
	}
	return nil, nomadplugin.ErrTaskNotFound
}

func (d *driver) add(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks[nomadplugin.TaskID(t.config.GetId())] = t
}

func (d *driver) StartTask(_ context.Context, c *nomadplugin.TaskConfig) (*nomadplugin.TaskHandle, *nomadplugin.NetworkOverride, error) {
	var options config
	if err := nomadplugin.DecodeConfig(c.GetMsgpackDriverConfig(), &options); err != nil {
		return nil, nil, err
	}
	switch options.FailStart {
	case "recoverable":
		return nil, nil, nomadplugin.Recoverable(errors.New("not enough memory: 1210 MB available, floor 1536 MB"))
	case "fatal":
		return nil, nil, errors.New("isolation_refused: docker does not answer on this node")
	case "dies":
		for _, n := range []string{"1", "2"} {
			if os.Mkdir(filepath.Join(d.taskRoot(), "died-"+n), 0o700) == nil {
				os.Exit(2)
			}
		}
	}
	t, err := startTask(d.taskRoot(), c, options)
	if err != nil {
		return nil, nil, err
	}
	state, err := json.Marshal(t.identity)
	if err != nil {
		return nil, nil, err
	}
	d.add(t)
	if options.Ready {
		d.events <- &nomadplugin.TaskEvent{
			TaskId: c.GetId(), AllocId: c.GetAllocId(), TaskName: c.GetName(), Message: "The screen is ready.",
			Annotations: map[string]string{
				"botscreen.state": "ready", "botscreen.event": "ready", "botscreen.profile": options.Labels["profile"],
				"botscreen.isolation": "host", "botscreen.holder": "agent", "botscreen.epoch": "7",
			},
		}
	}
	return &nomadplugin.TaskHandle{Version: 1, Config: c, DriverState: state}, nil, nil
}

func (d *driver) RecoverTask(_ context.Context, h *nomadplugin.TaskHandle) error {
	if _, err := d.find(nomadplugin.TaskID(h.GetConfig().GetId())); err == nil {
		return nil
	}
	var id identity
	if err := json.Unmarshal(h.GetDriverState(), &id); err != nil {
		return err
	}
	if !id.alive() {
		if _, err := os.Stat(id.Exit); err != nil {
			return fmt.Errorf("task lost while the driver was down")
		}
	}
	t := &task{identity: id, config: h.GetConfig(), done: make(chan struct{})}
	t.watch()
	d.add(t)
	return nil
}

func (d *driver) WaitTask(ctx context.Context, id nomadplugin.TaskID) (*nomadplugin.ExitResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.done:
		return t.result(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *driver) StopTask(ctx context.Context, id nomadplugin.TaskID, timeout time.Duration, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if signal == "" {
		signal = "SIGTERM"
	}
	if timeout > 0 {
		if err := t.signal(signal); err != nil {
			return err
		}
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-t.done:
			return nil
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	t.kill()
	<-t.done
	return nil
}

func (d *driver) DestroyTask(_ context.Context, id nomadplugin.TaskID, force bool) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if t.running() && !force {
		return nomadplugin.ErrTaskRunning
	}
	t.kill()
	<-t.done
	d.mu.Lock()
	delete(d.tasks, id)
	d.mu.Unlock()
	return os.RemoveAll(filepath.Dir(t.identity.Exit))
}

func (d *driver) InspectTask(_ context.Context, id nomadplugin.TaskID) (*nomadplugin.TaskInspection, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	return &nomadplugin.TaskInspection{Task: &nomadplugin.TaskStatus{Id: string(id), Name: t.config.GetName()}}, nil
}

func (d *driver) TaskStats(ctx context.Context, id nomadplugin.TaskID, _ time.Duration, send func(*nomadplugin.TaskStats) error) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	usage := &driverpb.TaskResourceUsage{
		Cpu:    &driverpb.CPUUsage{Percent: 1.5, MeasuredFields: []driverpb.CPUUsage_Fields{driverpb.CPUUsage_PERCENT}},
		Memory: &driverpb.MemoryUsage{Rss: 4096, MeasuredFields: []driverpb.MemoryUsage_Fields{driverpb.MemoryUsage_RSS}},
	}
	sample := &nomadplugin.TaskStats{AggResourceUsage: usage, ResourceUsageByPid: map[string]*driverpb.TaskResourceUsage{
		fmt.Sprint(t.identity.PID): usage,
	}}
	if err := send(sample); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *driver) SignalTask(_ context.Context, id nomadplugin.TaskID, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	return t.signal(signal)
}

func (d *driver) ExecTask(context.Context, nomadplugin.TaskID, []string, time.Duration) (*nomadplugin.ExecResult, error) {
	return nil, nomadplugin.ErrNotSupported
}

func (d *driver) ExecTaskStreaming(ctx context.Context, id nomadplugin.TaskID, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if req.Command[0] == "botscreen:control" {
		return serveControl(ctx, t, req)
	}
	if req.Command[0] == "botscreen:rfb" {
		return serveViewer(req)
	}
	return t.exec(ctx, req)
}

func signalNumber(name string) (unix.Signal, error) {
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, fmt.Errorf("signal %q is unknown", name)
}
