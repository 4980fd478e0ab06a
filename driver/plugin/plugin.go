// SPDX-License-Identifier: MPL-2.0

// Package plugin answers Nomad's driver calls in terms of screens: it decodes,
// translates and refuses; what a screen is and how it lives is package task's.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/apptainer"
	"github.com/botscreen/botscreen/driver/isolation/docker"
	"github.com/botscreen/botscreen/driver/isolation/host"
	"github.com/botscreen/botscreen/driver/requirements"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// Driver is the plugin. It is configured by SetConfig; until then it has defaults.
type Driver struct {
	log        hclog.Logger
	executable string
	environ    []string
	versions   *requirements.Memory

	mu       sync.Mutex // guards all below
	settings task.Settings
	engines  engines
	manager  *task.Manager
	mhz      float64 // one core's share of the node's compute, for stats
	reaping  context.CancelFunc
}

var (
	_ nomadplugin.Driver = (*Driver)(nil)
	_ nomadplugin.Idler  = (*Driver)(nil)
)

// New makes the driver; it has no effect outside this process.
func New(log hclog.Logger) (*Driver, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	return &Driver{log: log, executable: executable, environ: os.Environ(), versions: &requirements.Memory{}}, nil
}

// Info names the driver.
func (d *Driver) Info() nomadplugin.Info { return nomadplugin.Info{Name: Name, Version: Version} }

// ConfigSchema is the shape of the operator's configuration.
func (d *Driver) ConfigSchema() *nomadplugin.Spec { return operatorSchema() }

// TaskConfigSchema is the shape of a job's configuration.
func (d *Driver) TaskConfigSchema() *nomadplugin.Spec { return jobSchema() }

// Capabilities is constant.
func (d *Driver) Capabilities() *nomadplugin.Capabilities { return capabilities() }

// SetConfig takes the operator's configuration. Nothing outside this process changes:
// it comes several times, also in processes that are thrown away (N1a).
func (d *Driver) SetConfig(_ context.Context, req *nomadplugin.SetConfigRequest) error {
	config := defaultConfig()
	if err := nomadplugin.DecodeConfig(req.GetMsgpackConfig(), &config); err != nil {
		return fmt.Errorf("plugin config: %w", err)
	}
	settings, err := config.settings(d.executable, nodeDirs())
	if err != nil {
		return fmt.Errorf("plugin config: %w", err)
	}
	settings.KnownVersions = d.versions.All
	engines, err := newEngines(config, settings, d.log)
	if err != nil {
		return fmt.Errorf("plugin config: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if node := req.GetNomadConfig().GetDriver(); node != nil {
		d.mhz = totalMHz(node.GetTopology())
	}
	if d.manager != nil && d.manager.InUse() {
		d.log.Warn("the new plugin config is used after the next restart of the plugin: screens of the present one run")
		return nil
	}
	d.settings, d.engines = settings, engines
	d.manager = task.New(settings, engines.boundaries(), d.environ, d.log)
	return nil
}

// engines are what runs screens on this node.
type engines struct {
	host      *host.Boundary
	docker    *docker.Boundary
	apptainer *apptainer.Boundary
}

// newEngines touches nothing outside of this process.
func newEngines(config operatorConfig, settings task.Settings, log hclog.Logger) (engines, error) {
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		log.Debug("screens get no cgroup on this node", "reason", err)
		groups = nil
	}
	engine, err := docker.New(config.Docker.Endpoint, settings.StateDir)
	if err != nil {
		return engines{}, fmt.Errorf("docker.endpoint: %w", err)
	}
	return engines{
		host: &host.Boundary{Cgroups: groups}, docker: engine,
		apptainer: apptainer.New(apptainer.Options{
			Path: config.Apptainer.Path, ImageDirs: config.Apptainer.ImageDirs, StateDir: settings.StateDir, Cgroups: groups,
		}),
	}, nil
}

func (e engines) boundaries() []isolation.Boundary {
	return []isolation.Boundary{e.host, e.docker, e.apptainer}
}

// tasks is the manager; a driver that was never configured has the defaults.
func (d *Driver) tasks() (*task.Manager, error) {
	d.mu.Lock()
	manager := d.manager
	d.mu.Unlock()
	if manager != nil {
		return manager, nil
	}
	if err := d.SetConfig(context.Background(), &nomadplugin.SetConfigRequest{}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.manager, nil
}

// Init begins the work beside the calls; it comes again after a reattachment.
func (d *Driver) Init(context.Context) error { return d.begin() }

// begin starts the reaper of lost screens once.
func (d *Driver) begin() error {
	manager, err := d.tasks()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reaping != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.reaping = cancel
	go manager.ReapLost(ctx)
	return nil
}

// Shutdown leaves every screen running.
func (d *Driver) Shutdown(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reaping != nil {
		d.reaping()
		d.reaping = nil
	}
	return nil
}

// Idle says that no screen needs this process.
func (d *Driver) Idle() bool {
	d.mu.Lock()
	manager := d.manager
	d.mu.Unlock()
	return manager == nil || manager.Idle()
}

// TaskEvents passes on what happens to screens.
func (d *Driver) TaskEvents(ctx context.Context, send func(*nomadplugin.TaskEvent) error) error {
	manager, err := d.tasks()
	if err != nil {
		return err
	}
	return manager.Events().Follow(ctx, func(e task.Event) error { return send(eventMessage(e)) })
}

// find maps an unknown id to the text Nomad knows.
func (d *Driver) find(id nomadplugin.TaskID) (*task.Task, error) {
	manager, err := d.tasks()
	if err != nil {
		return nil, err
	}
	t, err := manager.Get(task.ID(id))
	if errors.Is(err, task.ErrNotFound) {
		return nil, nomadplugin.ErrTaskNotFound
	}
	return t, err
}
