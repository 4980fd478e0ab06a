// SPDX-License-Identifier: MPL-2.0

// Package devagent is a Nomad agent for one machine: it loads task driver plugins
// from a plugin directory over the real protocol, runs jobs with them and serves the
// part of Nomad's HTTP API that this project uses. It is for development and for
// machines without Nomad; it listens on loopback unless told otherwise.
//
// The parts, from the outside in: httpapi answers requests; server keeps jobs and
// evaluations and has scheduler decide; client runs allocations with what drivers
// loaded; state keeps it all over restarts.
package devagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/client"
	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/httpapi"
	"github.com/botscreen/botscreen/shared/devagent/node"
	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// NomadVersion is the release of Nomad whose behaviour this agent follows. Jobs
// compare it as ${attr.nomad.version}.
const NomadVersion = "2.0.5"

// fingerprintTimeout is how long the start waits for drivers to speak, as a Nomad
// client does.
const fingerprintTimeout = 50 * time.Second

// Config says how an agent runs.
type Config struct {
	// DataDir keeps everything; it is made where it does not exist (0711).
	DataDir string
	// Bind is the address to listen on, host:port.
	Bind string
	Node node.Config
	// PluginDir and Plugins say which drivers there are; Denied which are not.
	PluginDir string
	Plugins   []drivers.Block
	Denied    []string
	// Logmon is the command of a log collector: this program with the name of the
	// sub-command that calls logmon.Main.
	Logmon []string
	Log    hclog.Logger
}

// Agent is one agent. Make it with New, then Run it.
type Agent struct {
	config   Config
	token    string
	lock     *os.File
	listener net.Listener
	store    *state.Store
	drivers  *drivers.Set
	node     *node.Keeper
	server   *server.Server
	client   *client.Client
	ready    chan struct{}
}

// New opens the state, loads the plugins and listens. Nothing runs yet.
func New(ctx context.Context, c Config) (*Agent, error) {
	a := &Agent{config: c, ready: make(chan struct{})}
	if err := a.build(ctx, c); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) build(ctx context.Context, c Config) (err error) {
	if err := a.open(); err != nil {
		return err
	}
	if a.drivers, err = drivers.Load(ctx, drivers.Config{
		Dir: c.PluginDir, Blocks: c.Plugins, Denied: c.Denied,
		StateDir: filepath.Join(a.config.DataDir, "plugins"), Log: c.Log.Named("plugins"),
	}); err != nil {
		return err
	}
	c.Node.Dir, c.Node.HTTPAddr, c.Node.Version = a.config.DataDir, a.Addr(), NomadVersion
	if a.node, err = node.New(a.store, c.Node, a.drivers.Names()); err != nil {
		return err
	}
	a.server = server.New(a.store, c.Log.Named("server"))
	a.client, err = client.New(client.Config{
		Store: a.store, Server: a.server, Drivers: a.drivers,
		AllocDir: filepath.Join(a.config.DataDir, "alloc"), StateDir: filepath.Join(a.config.DataDir, "client"),
		Logmon: c.Logmon, Host: os.Environ(), Log: c.Log.Named("client"),
	})
	return err
}

func (a *Agent) close() {
	if a.listener != nil {
		_ = a.listener.Close()
	}
	if a.lock != nil {
		_ = a.lock.Close()
	}
}

// open makes the data directory ours, and opens what is in it.
func (a *Agent) open() error {
	if err := os.MkdirAll(a.config.DataDir, 0o711); err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	// Mount points are compared by their real path.
	dir, err := filepath.EvalSymlinks(a.config.DataDir)
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	if a.config.DataDir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	if a.lock, err = lockDir(a.config.DataDir); err != nil {
		return err
	}
	if a.token, err = openToken(TokenFile(a.config.DataDir)); err != nil {
		return err
	}
	if a.store, err = state.Open(filepath.Join(a.config.DataDir, "server")); err != nil {
		return err
	}
	if a.listener, err = net.Listen("tcp", a.config.Bind); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return writeAddress(a.config.DataDir, a.Addr())
}

// Addr is where the agent listens, host:port.
func (a *Agent) Addr() string { return a.listener.Addr().String() }

// DataDir is the real path of the data directory.
func (a *Agent) DataDir() string { return a.config.DataDir }

// Drivers lists the loaded drivers.
func (a *Agent) Drivers() []string { return a.drivers.Names() }

// Ready is closed when every driver has said how it is and jobs run.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run runs the agent until ctx is done. Tasks keep running after it; the next agent
// on the same data directory finds them.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	// Plugins outlive everything that calls them.
	plugins, stopPlugins := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlugins()

	var wg sync.WaitGroup
	faults := make(chan error, 4)
	wg.Go(func() { faults <- a.drivers.Run(plugins, a.driverUpdate, a.client.Event) })
	var work sync.WaitGroup
	work.Go(func() { faults <- a.serve(serving) })
	work.Go(func() { faults <- a.server.Run(serving) })
	work.Go(func() {
		if a.awaitDrivers(serving) {
			close(a.ready)
			faults <- a.client.Run(serving)
		}
	})
	var first error
	select {
	case <-ctx.Done():
	case first = <-faults:
	}
	stopServing()
	work.Wait()
	stopPlugins()
	wg.Wait()
	close(faults)
	for err := range faults {
		first = errors.Join(first, err)
	}
	return first
}

func (a *Agent) driverUpdate(u drivers.Update) {
	if err := a.node.Drivers(u); err != nil {
		a.config.Log.Error("driver not registered", "driver", u.Driver, "error", err)
	}
}

// awaitDrivers waits until every driver has spoken: a task of one that has not would
// be taken for lost.
func (a *Agent) awaitDrivers(ctx context.Context) bool {
	timer := time.NewTimer(fingerprintTimeout)
	defer timer.Stop()
	select {
	case <-a.node.Ready():
	case <-timer.C:
		a.config.Log.Warn("not every driver has said how it is", "waited", fingerprintTimeout)
	case <-ctx.Done():
		return false
	}
	return true
}

func (a *Agent) serve(ctx context.Context) error {
	host, port, err := net.SplitHostPort(a.Addr())
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	handler := &httpapi.API{
		Store: a.store, Server: a.server, Client: a.client, Node: a.node, Token: a.token,
		Log: a.config.Log.Named("http"),
		Self: api.AgentSelf{
			Config: map[string]any{
				"ACL": map[string]any{"Enabled": true}, "BindAddr": host, "Datacenter": a.config.Node.Datacenter,
				"DevMode": true, "Region": server.Region, "PluginDir": a.config.PluginDir,
				"Ports":   map[string]any{"HTTP": port},
				"Version": map[string]any{"Version": NomadVersion, "VersionMetadata": "botscreen"},
			},
			Member: api.AgentMember{Name: a.config.Node.Name + ".global", Addr: host, Status: "alive", Tags: map[string]string{"region": server.Region}},
			Stats: map[string]map[string]string{
				"nomad":  {"server": "true", "leader": "true"},
				"client": {"node_id": a.node.ID(), "known_servers": "127.0.0.1:4647"},
			},
		},
	}
	// No time limit on a whole request: logs and exec last as long as they last.
	s := &http.Server{
		Handler: handler.Handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    a.config.Log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	stop := context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(closing) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := s.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
