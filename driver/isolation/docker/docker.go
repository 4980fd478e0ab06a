// SPDX-License-Identifier: MPL-2.0

// Package docker runs a session in a container of a docker engine on this node. The
// engine makes and removes the container; that it lives and how it ends is the kernel's
// word, so an engine that restarts or is away ends no screen. Of an engine that turns out
// to be elsewhere the session's wire goes through a pipe.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// DefaultEndpoint is where an engine listens unless the operator says otherwise.
const DefaultEndpoint = "unix:///var/run/docker.sock"

const (
	// callLimit bounds a question the engine answers at once; it can be hung (P11).
	callLimit = 10 * time.Second
	// startLimit bounds making and starting a container, on a node that is busy.
	startLimit = time.Minute
)

// Boundary is the docker isolation. Its methods are safe for concurrent use.
type Boundary struct {
	api      *client.Client
	endpoint string
	owner    string
	bridge   string // the network of screens that want one
	// elsewhere says that the engine does not see this node, see elsewhere.go. It is found
	// out at the first launch.
	elsewhere atomic.Bool
}

var (
	_ isolation.Boundary      = (*Boundary)(nil)
	_ isolation.Sweeper       = (*Boundary)(nil)
	_ isolation.ScreenSweeper = (*Boundary)(nil)
)

// New prepares to talk to the engine at endpoint, which may be away now; an empty one is
// DefaultEndpoint. owner tells the containers of this driver from those of others that
// use the same engine. Nothing of the environment counts (X8): whoever starts the driver
// cannot send its screens to another engine.
func New(endpoint, owner string) (*Boundary, error) {
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Path == "" {
		return nil, &RefusedError{Reason: fmt.Sprintf("the docker endpoint %q cannot be used: the driver talks to an engine over a Unix socket. Set it to unix:///path/of/docker.sock; the socket of an engine elsewhere can be forwarded, with ssh -L for example", endpoint)}
	}
	api, err := client.NewClientWithOpts(client.WithHost(endpoint), client.WithAPIVersionNegotiation(), client.WithUserAgent("botscreen"))
	if err != nil {
		return nil, fmt.Errorf("docker client: %w", err)
	}
	return &Boundary{api: api, endpoint: endpoint, owner: owner, bridge: bridgeName}, nil
}

// Close lets go of the connections to the engine; no container is touched.
func (b *Boundary) Close() error { return b.api.Close() }

// Kind is screen.Docker.
func (b *Boundary) Kind() screen.Isolation { return screen.Docker }

// Intent names the container, so that a launch that died half-way can be found.
func (b *Boundary) Intent(order isolation.Order) isolation.Record {
	return isolation.Record{
		Isolation: screen.Docker, Instance: order.Instance,
		Container: containerName(order), Scratch: order.Scratch,
	}
}

func containerName(order isolation.Order) string {
	return "botscreen-" + order.ID.Hash() + "-" + order.Instance[:8]
}

// RefusedError says why docker cannot run a screen and what would change that.
type RefusedError = isolation.RefusedError

// away says whether a call failed because the engine is not there, or went while it answered.
func away(err error) bool {
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// explain gives the failures of an engine their words.
func (b *Boundary) explain(err error) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	cause := ""
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		cause = "no answer in time"
	case away(err):
		cause = connectionCause(err)
	default:
		return err
	}
	return &RefusedError{Err: err, Passes: true, Reason: fmt.Sprintf(
		"isolation_refused: docker does not answer on this node at %s (%s). Start it, place the screen on another node, or allow the raw host with `allow_unsandboxed_host`", b.endpoint, cause)}
}
