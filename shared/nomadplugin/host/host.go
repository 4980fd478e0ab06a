// SPDX-License-Identifier: MPL-2.0

// Package host finds, loads, starts and drives task driver plugins the way a Nomad client does.
//
//	h, err := host.Load(ctx, host.Options{Path: path, Config: config, Logger: logger})
//	go h.Fingerprint(ctx, onFingerprint)
//	go h.TaskEvents(ctx, onEvent)
//	task, err := h.StartTask(ctx, config)
//	go task.Run(ctx)
//	…
//	err = task.Kill(ctx, 5*time.Second, "")
//	err = h.Close(ctx)
//
// A [Host] is one configured plugin; its process is started on first use and again after it died. An
// [Instance] is one process; its methods are the calls of the protocol, without any retry. A [Task]
// is one run of a task over as many processes as it lasts.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-version"
	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
)

type callOption = grpc.CallOption

// Options say which plugin to load and how.
type Options struct {
	// Path of the executable, and arguments after it.
	Path string
	Args []string
	// Config is the operator's `config` block as a map; hclconfig.ParseHCL makes one. Nil means that
	// none was written.
	Config map[string]any
	// Node is what the plugin is told about the node; nil is LocalNode().
	Node *nomadplugin.NodeConfig
	// Logger receives the plugin's log lines at their own level; nil discards them.
	Logger hclog.Logger
	// Reattach is the record of a process that an earlier host left running. Where it is gone, or is
	// something else by now, a new one is started.
	Reattach *Reattach
	// StoreReattach is told the record of each new process, and nil when a process was ended. It must
	// not call the host.
	StoreReattach func(*Reattach)
	// MaxKillTimeout caps the timeout of Task.Kill; 0 is 30 s.
	MaxKillTimeout time.Duration
	// StartTimeout bounds the handshake of a process; 0 is 1 min.
	StartTimeout time.Duration

	pace pace
}

// pace is the waiting of a host; tests shorten it.
type pace struct {
	launchMin, launchMax time.Duration
	stop                 []time.Duration
}

func nomadPace() pace {
	return pace{
		launchMin: 5 * time.Second,
		launchMax: 2 * time.Minute,
		stop:      []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute},
	}
}

func (o Options) withDefaults() Options {
	if o.Node == nil {
		o.Node = LocalNode()
	}
	if o.Logger == nil {
		o.Logger = hclog.New(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	}
	if o.MaxKillTimeout == 0 {
		o.MaxKillTimeout = 30 * time.Second
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.pace.stop == nil {
		o.pace = nomadPace()
	}
	return o
}

// ErrNoCommonVersion is the one failure of Load that a Nomad agent answers by skipping the plugin
// instead of not starting.
var ErrNoCommonVersion = errors.New("no common plugin API version")

// ErrClosed is the answer of a host after Close or Detach.
var ErrClosed = errors.New("plugin host is closed")

// Host is one configured plugin.
type Host struct {
	options Options
	info    nomadplugin.Info
	config  []byte

	// dispense holds one token; its owner may replace instance, reattach and closed.
	dispense chan struct{}
	instance *Instance
	reattach *Reattach
	closed   bool
}

// Load asks the binary who it is, checks the configuration against its schema and with the plugin
// itself, each in a process of its own that is ended again. It starts nothing that stays.
func Load(ctx context.Context, options Options) (*Host, error) {
	h := &Host{options: options.withDefaults(), reattach: options.Reattach, dispense: make(chan struct{}, 1)}
	h.dispense <- struct{}{}
	hasSchema, err := h.identify(ctx)
	if err != nil {
		return nil, err
	}
	if hasSchema {
		if err := h.validate(ctx); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Info names the plugin.
func (h *Host) Info() nomadplugin.Info { return h.info }

// identify is the first throw-away process.
func (h *Host) identify(ctx context.Context) (hasSchema bool, err error) {
	p, err := h.launch(ctx, nomadplugin.BasePluginName)
	if err != nil {
		return false, err
	}
	defer p.end(ctx)
	info, err := p.base.PluginInfo(ctx, &basepb.PluginInfoRequest{})
	if err != nil {
		return false, fmt.Errorf("identify plugin %s: %w", h.options.Path, err)
	}
	if err := checkInfo(info); err != nil {
		return false, fmt.Errorf("identify plugin %s: %w", h.options.Path, err)
	}
	h.info = nomadplugin.Info{Name: info.GetName(), Version: info.GetPluginVersion()}
	schema, err := p.base.ConfigSchema(ctx, &basepb.ConfigSchemaRequest{})
	if err != nil {
		return false, fmt.Errorf("read configuration schema of plugin %s: %w", h.info.Name, err)
	}
	if schema.GetSpec() == nil {
		if len(h.options.Config) > 0 {
			return false, fmt.Errorf("configure plugin %s: configuration not allowed but config passed", h.info.Name)
		}
		return false, nil
	}
	h.config, err = hclconfig.Encode(schema.GetSpec(), h.options.Config, hclconfig.Variables{})
	if err != nil {
		return false, fmt.Errorf("configure plugin %s: %w", h.info.Name, err)
	}
	return true, nil
}

func checkInfo(info *basepb.PluginInfoResponse) error {
	if info.GetType() != basepb.PluginType_DRIVER {
		return fmt.Errorf("it is a plugin of type %s: want DRIVER", info.GetType())
	}
	if info.GetName() == "" {
		return errors.New("it has no name")
	}
	if _, err := version.NewVersion(info.GetPluginVersion()); err != nil {
		return fmt.Errorf("its version %q: %w", info.GetPluginVersion(), err)
	}
	for _, api := range info.GetPluginApiVersions() {
		if api == nomadplugin.APIVersion {
			return nil
		}
	}
	return fmt.Errorf("%w: it speaks %q, this host %s", ErrNoCommonVersion, info.GetPluginApiVersions(), nomadplugin.APIVersion)
}

// validate is the second throw-away process: the plugin sees its configuration twice, as under an
// agent, without the node's.
func (h *Host) validate(ctx context.Context) error {
	p, err := h.launch(ctx, nomadplugin.BasePluginName, nomadplugin.DriverPluginName)
	if err != nil {
		return err
	}
	defer p.end(ctx)
	for range 2 {
		if _, err := p.base.SetConfig(ctx, h.setConfig(nil)); err != nil {
			return fmt.Errorf("configure plugin %s: %w", h.info.Name, err)
		}
	}
	return nil
}

func (h *Host) setConfig(node *nomadplugin.NodeConfig) *nomadplugin.SetConfigRequest {
	return &nomadplugin.SetConfigRequest{
		MsgpackConfig:    h.config,
		NomadConfig:      node,
		PluginApiVersion: nomadplugin.APIVersion,
	}
}
