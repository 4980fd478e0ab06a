// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// dataDirVariable names the data directory of an embedded agent that does not use the
// default one.
const dataDirVariable = "BOTSCREEN_AGENT_DIR"

// nomad makes a client of the cluster that flags and environment name.
func (c *cli) nomad() (*api.Client, error) {
	config := api.DefaultConfig()
	explicit := c.address != "" || os.Getenv("NOMAD_ADDR") != ""
	if c.address != "" {
		config.Address = c.address
	}
	if c.namespace != "" {
		config.Namespace = c.namespace
	}
	if c.region != "" {
		config.Region = c.region
	}
	agentOf(config, explicit)
	client, err := api.NewClient(config)
	if err != nil {
		return nil, failf(exitUsage, "Cannot use the Nomad address %q: %v. Set NOMAD_ADDR to a URL such as http://127.0.0.1:4646.", config.Address, err)
	}
	return client, nil
}

// agentOf fills in the address of this machine's embedded agent where the user names
// none, and its token if it is the one that is asked. The token is sent only where a live agent listens: another program on the
// same port must not get it.
func agentOf(config *api.Config, explicit bool) {
	dir, err := agentDir()
	if err != nil {
		return
	}
	live, err := devagent.LiveAddress(dir)
	if err != nil {
		return
	}
	if !explicit {
		config.Address = "http://" + live
	}
	if config.SecretID != "" || !sameLoopback(config.Address, live) {
		return
	}
	if token, err := devagent.ReadToken(dir); err == nil {
		config.SecretID = token
	}
}

func agentDir() (string, error) {
	if dir := os.Getenv(dataDirVariable); dir != "" {
		return dir, nil
	}
	return devagent.DefaultDataDir()
}

// sameLoopback says whether a URL is plain HTTP to the port of a live agent on this
// machine.
func sameLoopback(address, live string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	_, port, err := net.SplitHostPort(live)
	if err != nil || u.Port() != port {
		return false
	}
	if strings.EqualFold(u.Hostname(), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}

// located connects to Nomad and gives the screen that the user means.
func (c *cli) located(ctx context.Context, name string) (*api.Client, nomadjob.Screen, error) {
	client, err := c.nomad()
	if err != nil {
		return nil, nomadjob.Screen{}, err
	}
	s, err := c.find(ctx, client, name)
	return client, s, err
}

// find gives the screen that the user means.
func (c *cli) find(ctx context.Context, client *api.Client, name string) (nomadjob.Screen, error) {
	s, err := nomadjob.Find(ctx, client, "", name)
	if err == nil {
		return s, nil
	}
	var several *nomadjob.AmbiguousError
	var none *nomadjob.NotFoundError
	switch {
	case errors.As(err, &several):
		return s, failf(exitNotFound, "Several screens go by that name. %v\nName one of them by job/group/task or by its allocation.", several)
	case errors.As(err, &none):
		return s, &exitError{exitNotFound, errors.New(notFound(none))}
	}
	return s, c.nomadError(err)
}

func notFound(none *nomadjob.NotFoundError) string {
	if len(none.Screens) == 0 {
		return fmt.Sprintf("There is no screen %q: no screen runs in this namespace. Start one with `botscreen run JOBFILE`.", none.Name)
	}
	var names []string
	for _, s := range none.Screens {
		name := s.Profile.String()
		if name == "" {
			name = s.Path()
		}
		names = append(names, name)
	}
	return fmt.Sprintf("There is no screen %q. There are: %s.", none.Name, strings.Join(names, ", "))
}

// nomadError says what a failed call of Nomad means and what to do about it.
func (c *cli) nomadError(err error) error {
	var unexpected api.UnexpectedResponseError
	var network net.Error
	var exit *exitError
	switch {
	case err == nil || errors.As(err, &exit) || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unexpected) && unexpected.HasStatusCode() && unexpected.StatusCode() == 403:
		return failf(exitNoNomad, "Nomad refused: %s. Set NOMAD_TOKEN to a token that may do this; for this machine's embedded agent it is in the file `token` of its data directory.",
			strings.TrimSpace(unexpected.Body()))
	case errors.As(err, &unexpected) && unexpected.HasBody():
		return failf(exitFailed, "Nomad refused: %s", strings.TrimSpace(unexpected.Body()))
	case errors.As(err, &network):
		return failf(exitNoNomad, "Nomad cannot be reached: %v. Set NOMAD_ADDR, or start an agent on this machine with `botscreen agent -dev`.", err)
	}
	return err
}
