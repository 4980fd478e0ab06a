// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// bridgeName is the network of all screens with `network_mode = "bridge"` on a node.
const bridgeName = "botscreen"

// optionICC says whether containers on a bridge reach each other (docker network create).
const optionICC = "com.docker.network.bridge.enable_icc"

func (b *Boundary) networkMode(order isolation.Order) container.NetworkMode {
	if order.Network == screen.NetworkBridge {
		return container.NetworkMode(b.bridge)
	}
	return "none"
}

// ensureBridge makes the bridge where it is missing. One of that name on which screens
// would reach each other is refused (X37), and so is one with IPv6: nothing of ours keeps
// that from anything.
func (b *Boundary) ensureBridge(ctx context.Context) (network.Inspect, error) {
	found, err := b.api.NetworkInspect(ctx, b.bridge, network.InspectOptions{})
	if errdefs.IsNotFound(err) {
		_, err = b.api.NetworkCreate(ctx, b.bridge, network.CreateOptions{
			Driver: "bridge", EnableIPv6: new(bool), Options: map[string]string{optionICC: "false"}, Labels: map[string]string{labelOwner: b.owner},
		})
		if errdefs.IsConflict(err) { // another start has made it
			err = nil
		} else if err != nil {
			return found, fmt.Errorf("make network %s: %w", b.bridge, b.explain(err))
		}
		found, err = b.api.NetworkInspect(ctx, b.bridge, network.InspectOptions{})
	}
	if err != nil {
		return found, fmt.Errorf("find network %s: %w", b.bridge, b.explain(err))
	}
	if found.Driver != "bridge" || found.Options[optionICC] != "false" {
		return found, &RefusedError{Reason: fmt.Sprintf("the docker network %s lets containers reach each other, or is no bridge. Remove it (docker network rm %s) and it is made anew, or set network_mode = \"none\" in the job", b.bridge, b.bridge)}
	}
	if found.EnableIPv6 {
		return found, &RefusedError{Reason: fmt.Sprintf("the docker network %s has IPv6, from which this driver keeps no screen. Remove it (docker network rm %s) and it is made anew, or set network_mode = \"none\" in the job", b.bridge, b.bridge)}
	}
	return found, nil
}
