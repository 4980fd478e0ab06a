// SPDX-License-Identifier: MPL-2.0

// Package drivers loads the task driver plugins of a plugin directory and follows
// what they say of themselves, as a Nomad client does.
package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/structspb"
)

// Block is a plugin block of an agent's configuration. Its name is the file's.
type Block struct {
	Name string
	Args []string
	// Config is the config block in Nomad's intermediate form; nil was not written.
	Config map[string]any
}

// Config says what to load.
type Config struct {
	// Dir is the plugin directory.
	Dir    string
	Blocks []Block
	// Denied are drivers, by the name that jobs use or by the file's, that are not
	// loaded.
	Denied []string
	// StateDir keeps what is needed to find a plugin's process again.
	StateDir string
	Log      hclog.Logger
}

// Update is what a driver says of itself.
type Update struct {
	Driver string
	Info   *api.DriverInfo
}

// Set is the loaded plugins. It is safe for concurrent use.
type Set struct {
	hosts map[string]*host.Host
	log   hclog.Logger
}

// Load loads the plugins that the configuration names. As with Nomad, a plugin that
// is named and does not load is an error; a file that is not named is not executed.
func Load(ctx context.Context, c Config) (*Set, error) {
	found, skipped, err := host.Discover(c.Dir)
	if err != nil {
		return nil, err
	}
	for _, s := range skipped {
		c.Log.Debug("no plugin", "path", s.Path, "reason", s.Reason)
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("load plugins: %w", err)
	}
	set := &Set{hosts: map[string]*host.Host{}, log: c.Log}
	for _, b := range found {
		i := slices.IndexFunc(c.Blocks, func(block Block) bool { return block.Name == b.Name })
		if i < 0 {
			c.Log.Debug("plugin not referenced in the agent configuration, loading skipped", "plugin", b.Name)
			continue
		}
		if c.denied(b.Name) {
			c.Log.Warn("plugin denied by the agent configuration, loading skipped", "plugin", b.Name)
			continue
		}
		if err := set.load(ctx, c, b, c.Blocks[i]); err != nil {
			return nil, err
		}
	}
	for _, block := range c.Blocks {
		if !slices.ContainsFunc(found, func(b host.Binary) bool { return b.Name == block.Name }) {
			c.Log.Warn("plugin of the agent configuration not found", "plugin", block.Name, "plugin_dir", c.Dir)
		}
	}
	return set, nil
}

// denied is asked before a plugin is executed, so that a denied one with a broken
// configuration does not keep the agent from starting (NMD-24).
func (c Config) denied(binary string) bool {
	return slices.Contains(c.Denied, binary) || slices.Contains(c.Denied, strings.TrimPrefix(binary, "nomad-driver-"))
}

func (s *Set) load(ctx context.Context, c Config, b host.Binary, block Block) error {
	record := filepath.Join(c.StateDir, b.Name+".json")
	h, err := host.Load(ctx, host.Options{
		Path: b.Path, Args: block.Args, Config: block.Config, Logger: c.Log.Named(b.Name),
		Reattach:      readReattach(record, c.Log),
		StoreReattach: func(r *host.Reattach) { storeReattach(record, r, c.Log) },
	})
	switch {
	case errors.Is(err, host.ErrNoCommonVersion):
		c.Log.Warn("plugin skipped", "plugin", b.Name, "error", err)
		return nil
	case err != nil:
		return err
	case c.denied(h.Info().Name):
		c.Log.Warn("driver denied by the agent configuration", "driver", h.Info().Name)
		return nil
	case s.hosts[h.Info().Name] != nil:
		return fmt.Errorf("load plugin %s: driver %q is already loaded", b.Path, h.Info().Name)
	}
	s.hosts[h.Info().Name] = h
	return nil
}

func readReattach(path string, log hclog.Logger) *host.Reattach {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var r host.Reattach
	if err := json.Unmarshal(text, &r); err != nil {
		log.Warn("record of a plugin process not readable", "path", path, "error", err)
		return nil
	}
	return &r
}

func storeReattach(path string, r *host.Reattach, log hclog.Logger) {
	err := func() error {
		if r == nil {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}()
	if err != nil {
		log.Error("record of a plugin process not kept", "path", path, "error", err)
	}
}

// Names lists the loaded drivers.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.hosts)) }

// Host gives a driver's plugin.
func (s *Set) Host(driver string) (*host.Host, error) {
	if h := s.hosts[driver]; h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("driver not found: %s", driver)
}

// closeTimeout bounds the end of all plugins.
const closeTimeout = 10 * time.Second

// Run follows fingerprints and events until ctx is done; then it ends the plugins'
// processes. Tasks keep running. update and event may be called at the same time.
func (s *Set) Run(ctx context.Context, update func(Update), event func(*nomadplugin.TaskEvent)) error {
	var wg sync.WaitGroup
	for name, h := range s.hosts {
		known := &fingerprint{driver: name, attributes: map[string]string{}}
		wg.Go(func() {
			_ = h.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) { update(known.next(f)) })
		})
		wg.Go(func() { _ = h.TaskEvents(ctx, event) })
	}
	wg.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var faults []error
	for _, h := range s.hosts {
		if err := h.Close(closing); err != nil && !errors.Is(err, host.ErrShutdown) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// fingerprint keeps the attributes of a driver: those that a later message leaves
// out stay, those sent empty go.
type fingerprint struct {
	driver     string
	attributes map[string]string
}

func (k *fingerprint) next(f *nomadplugin.Fingerprint) Update {
	for name, value := range f.GetAttributes() {
		if text := attribute(value); text != "" {
			k.attributes[name] = text
		} else {
			delete(k.attributes, name)
		}
	}
	info := &api.DriverInfo{
		Attributes:        maps.Clone(k.attributes),
		Detected:          f.GetHealth() != nomadplugin.Undetected,
		Healthy:           f.GetHealth() == nomadplugin.Healthy,
		HealthDescription: f.GetHealthDescription(),
		UpdateTime:        time.Now(),
	}
	return Update{Driver: k.driver, Info: info}
}

// attribute writes a value with its unit: 5MiB, true.
func attribute(a *nomadplugin.Attribute) string {
	switch v := a.GetValue().(type) {
	case *structspb.Attribute_StringVal:
		return v.StringVal
	case *structspb.Attribute_BoolVal:
		return fmt.Sprint(v.BoolVal)
	case *structspb.Attribute_IntVal:
		return fmt.Sprint(v.IntVal) + a.GetUnit()
	case *structspb.Attribute_FloatVal:
		return fmt.Sprint(v.FloatVal) + a.GetUnit()
	}
	return ""
}
