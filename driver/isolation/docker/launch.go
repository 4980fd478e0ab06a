// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// Launch makes and starts a container with the session as its first process. The image
// has to be on the node, see Pull. The session gets its plan from its supervisor.
func (b *Boundary) Launch(ctx context.Context, order isolation.Order) (isolation.Sandbox, error) {
	s, err := b.launch(ctx, order)
	if err != nil {
		return nil, fmt.Errorf("launch session: %w", b.explain(err))
	}
	return s, nil
}

func (b *Boundary) launch(ctx context.Context, order isolation.Order) (*sandbox, error) {
	if err := check(order); err != nil {
		return nil, err
	}
	img, err := b.Inspect(ctx, order.Image)
	if err != nil {
		return nil, err
	}
	bridge := network.Inspect{}
	if order.Network == screen.NetworkBridge {
		if bridge, err = b.ensureBridge(ctx); err != nil {
			return nil, err
		}
	}
	s, err := b.launchWherever(ctx, order, img)
	if err == nil && order.Network == screen.NetworkBridge {
		// No program of the desktop runs yet: the session waits for its supervisor.
		s.warnings = b.guard(ctx, bridge)
	}
	return s, err
}

// launchWherever finds out whether the engine is elsewhere.
func (b *Boundary) launchWherever(ctx context.Context, order isolation.Order, img Image) (*sandbox, error) {
	if !b.elsewhere.Load() {
		s, err := b.launchHere(ctx, order, img)
		if !errors.Is(err, errElsewhere) {
			return s, err
		}
		b.elsewhere.Store(true) // it stays what it is
	}
	return b.launchElsewhere(ctx, order, img)
}

// launchHere binds what a session needs, and finds out whether the engine sees it.
func (b *Boundary) launchHere(ctx context.Context, order isolation.Order, img Image) (*sandbox, error) {
	if err := writeAccountFiles(order); err != nil {
		return nil, err
	}
	if err := bindVolumes(order); err != nil {
		return nil, errors.Join(err, isolation.Unbind(order.Scratch))
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	id, err := b.create(ctx, order, img)
	if err != nil {
		// The engine may have made it although its answer did not come.
		return nil, errors.Join(err, b.discard(ctx, containerName(order)), isolation.Unbind(order.Scratch))
	}
	s, err := b.start(ctx, id, order)
	if err != nil {
		return nil, errors.Join(err, b.discard(ctx, id), isolation.Unbind(order.Scratch))
	}
	return s, nil
}

// check refuses what this isolation cannot give; nothing weaker is given instead (P1).
func check(order isolation.Order) error {
	switch {
	case order.Account.Inherited || order.Account.UID == 0 || order.Account.GID == 0:
		return &RefusedError{Reason: "docker isolation gives every screen a uid of its own, never root, and needs a driver that runs as root for that"}
	case order.NetworkNamespace != "":
		return &RefusedError{Reason: "docker cannot join the network that Nomad made for this group: an engine takes no network namespace by its path. Leave `network { mode }` of the group at host, and the screen has no network, or use another isolation"}
	}
	return nil
}

func (b *Boundary) create(ctx context.Context, order isolation.Order, img Image) (id string, err error) {
	profile, err := isolation.SeccompProfile()
	if err != nil {
		return "", fmt.Errorf("seccomp profile: %w", err)
	}
	made, err := b.api.ContainerCreate(ctx, containerConfig(order, b.owner, img), b.hostConfig(order, img, profile), nil, nil, containerName(order))
	switch {
	case err != nil && strings.Contains(err.Error(), "bind source path does not exist"):
		return "", fmt.Errorf("create container: %w: %w", errElsewhere, err) // all of them are there
	case err != nil:
		return "", fmt.Errorf("create container: %w", err)
	}
	return made.ID, nil
}

func (b *Boundary) start(ctx context.Context, id string, order isolation.Order) (*sandbox, error) {
	began, err := b.startContainer(ctx, id)
	if err != nil {
		return nil, err
	}
	identity, err := b.sessionOf(ctx, id, order)
	if err != nil {
		return nil, err
	}
	record := b.Intent(order)
	record.Session, record.Container = identity, id
	return b.followFrom(record, order, began)
}

func (b *Boundary) startContainer(ctx context.Context, id string) (began time.Time, err error) {
	began = time.Now()
	if err := b.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return began, fmt.Errorf("start container: %w", err)
	}
	return began, nil
}

// sessionOf is the container's first process by the kernel's word. One that runs for the
// engine and is not there for the kernel is elsewhere.
func (b *Boundary) sessionOf(ctx context.Context, id string, order isolation.Order) (process.Identity, error) {
	var identity process.Identity
	for range 2 { // it may have ended just after the engine was asked
		found, err := b.api.ContainerInspect(ctx, id)
		if err != nil {
			return identity, fmt.Errorf("inspect container: %w", err)
		}
		if !found.State.Running {
			return identity, endedAtOnce(found)
		}
		identity, err = confined(found.State.Pid, id, order.Account)
		if !errors.Is(err, process.ErrGone) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errElsewhere) {
			return identity, err
		}
	}
	return identity, errElsewhere
}

func endedAtOnce(found container.InspectResponse) error {
	return fmt.Errorf("the session ended at once with status %d %s", found.State.ExitCode, found.State.Error)
}

// followFrom follows a session and what it says.
func (b *Boundary) followFrom(record isolation.Record, order isolation.Order, began time.Time) (*sandbox, error) {
	s, err := b.follow(record)
	if err != nil {
		return nil, err
	}
	if err := s.FollowLogs(order.Log, order.ErrorLog, began); err != nil {
		_ = s.handle.Close()
		return nil, err
	}
	return s, nil
}

// discard removes a container with all that runs in it. It is done although the start
// was called off.
func (b *Boundary) discard(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	return b.remove(ctx, ref)
}

// awayPatience is how long a removal waits for an engine that is away: one that restarts
// is back by then.
const awayPatience = 10 * time.Second

// remove removes a container; one that is not there is no error, one that somebody else is
// removing is waited for, and so is an engine that is away, for a while.
func (b *Boundary) remove(ctx context.Context, ref string) error {
	began := time.Now()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := b.api.ContainerRemove(ctx, ref, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case away(err) && time.Since(began) < awayPatience:
		case !errdefs.IsConflict(err):
			return fmt.Errorf("remove container: %w", b.explain(err))
		}
		select {
		case <-time.After(pause): // a removal has no event that an engine still has for us
		case <-ctx.Done():
			return fmt.Errorf("remove container: %w", b.explain(err))
		}
	}
}

// Adopt takes over a container by the record's id and its random instance: a label or a
// name alone says nothing, anybody may write it (X38). While the engine is away what
// lives by the kernel's word is adopted by it (DOC-06).
func (b *Boundary) Adopt(ctx context.Context, record isolation.Record) (isolation.Sandbox, error) {
	s, err := b.adopt(ctx, record)
	if err != nil {
		return nil, fmt.Errorf("adopt session: %w", b.explain(err))
	}
	return s, nil
}

func (b *Boundary) adopt(ctx context.Context, record isolation.Record) (*sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := b.api.ContainerInspect(ctx, record.Container)
	switch {
	case errdefs.IsNotFound(err):
		return b.follow(record) // gone, or ends at this moment
	case err != nil && record.Session.Alive():
		return b.follow(record)
	case err != nil:
		return nil, err
	case found.Config == nil || found.Config.Labels[labelInstance] != record.Instance:
		return nil, &RefusedError{Reason: fmt.Sprintf("the container %s is not this run's and is not touched", found.Name)}
	}
	record.Container = found.ID
	if record.Session == (process.Identity{}) && found.State.Pid > 0 {
		// An intent: its launch died before it could write down more. A pid of an engine
		// elsewhere is a stranger's here.
		record.Session, err = inContainer(found.State.Pid, found.ID)
		if err != nil && !errors.Is(err, process.ErrGone) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errElsewhere) {
			return nil, err
		}
	}
	return b.follow(record)
}
