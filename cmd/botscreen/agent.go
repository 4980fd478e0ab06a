// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/devagent/agentconfig"
	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/node"
)

// pluginName is the file of the driver.
const pluginName = "nomad-driver-botscreen"

// agentFlags are what a user may say of the agent; empty means the configuration file
// or the default.
type agentFlags struct {
	dev                                        bool
	config, dataDir, pluginDir, bind, logLevel string
}

func (c *cli) agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent -dev",
		Short: "Run a Nomad agent for this machine alone",
		Long: `Run an embedded single-node Nomad agent: it loads driver plugins from a plugin directory, runs jobs
and serves Nomad's HTTP API on loopback. It is for development and for machines without Nomad.

Its state survives a restart, and screens keep running while it is away: stop them with
` + "`botscreen stop`" + ` first if they are not to.

The token is made at the first start, in the file "token" of the data directory, readable for this
user only. Programs of this user, also on a screen of this user, can read it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.agent(cmd, f) },
	}
	cmd.Flags().BoolVar(&f.dev, "dev", false, "run for development (required: there is no other mode)")
	cmd.Flags().StringVar(&f.config, "config", "", "`FILE` in the grammar of Nomad's agent configuration: plugin, plugin_dir, client, ports")
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "`DIR` for state, token and allocations (default: beside this user's state)")
	cmd.Flags().StringVar(&f.pluginDir, "plugin-dir", "", "`DIR` with driver plugins (default: where this program is)")
	cmd.Flags().StringVar(&f.bind, "bind", "", "`HOST:PORT` to listen on (default 127.0.0.1:4646)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "", "trace, debug, info, warn or error (default warn)")
	return cmd
}

func (c *cli) agent(cmd *cobra.Command, f agentFlags) error {
	if !f.dev {
		return failf(exitUsage, "The embedded agent is for development and for single machines: start it with `botscreen agent -dev`. For a cluster install Nomad.")
	}
	config, ours, err := c.agentConfig(f)
	if err != nil {
		return err
	}
	a, err := devagent.New(cmd.Context(), config)
	if err != nil {
		return failf(exitFailed, "Cannot start the agent: %v.", err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		select {
		case <-a.Ready():
			c.announce(a, ours)
		case <-cmd.Context().Done():
		}
	}()
	err = a.Run(cmd.Context())
	<-ready
	if err != nil {
		return failf(exitFailed, "The agent ended: %v.", err)
	}
	_, _ = fmt.Fprintln(c.errs, "The agent has ended. Screens that were running still do; the next agent finds them.")
	return nil
}

// agentConfig puts flags, file and defaults together. ours says that the driver runs
// with the default configuration of -dev.
func (c *cli) agentConfig(f agentFlags) (config devagent.Config, ours bool, err error) {
	file := &agentconfig.Config{}
	if f.config != "" {
		if file, err = agentconfig.Load(f.config); err != nil {
			return config, false, failf(exitUsage, "The agent configuration cannot be used:\n%v", err)
		}
	}
	if config.DataDir, err = firstOr(agentDir, f.dataDir, file.DataDir); err != nil {
		return config, false, failf(exitFailed, "Cannot find a data directory: %v. Name one with -data-dir.", err)
	}
	if config.DataDir, err = filepath.Abs(config.DataDir); err != nil {
		return config, false, err
	}
	if config.PluginDir, err = firstOr(programDir, f.pluginDir, file.PluginDir); err != nil {
		return config, false, failf(exitFailed, "Cannot find the plugin directory: %v. Name it with -plugin-dir.", err)
	}
	self, err := os.Executable()
	if err != nil {
		return config, false, failf(exitFailed, "Cannot find this program: %v.", err)
	}
	config.Logmon = []string{self, logmonCommand}
	config.Bind = bindAddress(f.bind, file)
	config.Node = node.Config{
		Name: file.Name, Datacenter: or(file.Datacenter, "dc1"), Class: file.NodeClass, Meta: file.Meta,
		ReservedMemoryMB: file.ReservedMemoryMB,
	}
	config.Denied = file.DeniedDrivers
	config.Plugins, ours = withDefaultPlugin(file.Plugins, config.DataDir)
	level := hclog.LevelFromString(or(f.logLevel, or(file.LogLevel, "warn")))
	if level == hclog.NoLevel {
		return config, false, failf(exitUsage, "Unknown log level %q: it must be trace, debug, info, warn or error.", or(f.logLevel, file.LogLevel))
	}
	config.Log = hclog.New(&hclog.LoggerOptions{Name: "agent", Level: level, Output: c.errs})
	return config, ours, nil
}

// withDefaultPlugin adds the driver as a developer wants it, unless the file has a
// block for it.
func withDefaultPlugin(blocks []drivers.Block, dataDir string) (out []drivers.Block, added bool) {
	if slices.ContainsFunc(blocks, func(b drivers.Block) bool { return b.Name == pluginName }) {
		return blocks, false
	}
	return append(blocks, drivers.Block{Name: pluginName, Config: map[string]any{
		"allow_unsandboxed_host": true,
		"state_dir":              screenDir(dataDir),
	}}), true
}

func screenDir(dataDir string) string { return filepath.Join(dataDir, "screens") }

func bindAddress(flag string, file *agentconfig.Config) string {
	if flag != "" {
		return flag
	}
	port := 4646
	if file.HTTPPort != 0 {
		port = file.HTTPPort
	}
	return net.JoinHostPort(or(file.BindAddr, "127.0.0.1"), strconv.Itoa(port))
}

// programDir is where this program is.
func programDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	return filepath.Dir(self), nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func firstOr(fallback func() (string, error), values ...string) (string, error) {
	for _, v := range values {
		if v != "" {
			return v, nil
		}
	}
	return fallback()
}

// announce tells where the agent is and how to reach it.
func (c *cli) announce(a *devagent.Agent, ours bool) {
	token := devagent.TokenFile(a.DataDir())
	if c.json {
		_ = c.printJSON(map[string]any{
			"address": "http://" + a.Addr(), "token_file": token, "data_dir": a.DataDir(), "drivers": a.Drivers(),
		})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "botscreen agent on http://%s\n", a.Addr())
	fmt.Fprintf(&b, "  state     %s\n", a.DataDir())
	if len(a.Drivers()) == 0 {
		fmt.Fprintf(&b, "  drivers   none: no plugin was found. Put %s into the plugin directory, or name it with -plugin-dir.\n", pluginName)
	} else {
		fmt.Fprintf(&b, "  drivers   %s\n", strings.Join(a.Drivers(), ", "))
	}
	if ours && slices.Contains(a.Drivers(), "botscreen") {
		fmt.Fprintf(&b, "  -dev      screens may run on the raw host (allow_unsandboxed_host = true); theirs is %s\n", screenDir(a.DataDir()))
	}
	if !loopback(a.Addr()) {
		b.WriteString("  WARNING   it listens beyond this machine, without TLS: the token can be read on the way.\n")
	}
	b.WriteString("  This is for development: programs of this user, also on its screens, can read the token.\n\n")
	fmt.Fprintf(&b, "export NOMAD_ADDR=http://%s\n", a.Addr())
	fmt.Fprintf(&b, "export NOMAD_TOKEN=\"$(cat %s)\"\n", shellQuote(token))
	_, _ = fmt.Fprint(c.out, b.String())
}

func loopback(address string) bool {
	addr, err := netip.ParseAddrPort(address)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// shellQuote quotes a path for a shell, within double quotes' command substitution.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var errNoPlugin = errors.New("the driver is not installed")
