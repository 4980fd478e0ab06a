// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// netnsDir is where network namespaces are bound, as by ip-netns(8) and Nomad.
const netnsDir = "/var/run/netns"

// network is the network of an allocation whose mode is none: a namespace with
// nothing but a loopback interface. Nil is the host's network.
type network struct{ path string }

func (n *network) status() *api.AllocNetworkStatus {
	return &api.AllocNetworkStatus{}
}

// spec is what drivers are told; nil for the host's network.
func (n *network) spec() *nomadplugin.NetworkIsolation {
	if n == nil {
		return nil
	}
	return &nomadplugin.NetworkIsolation{Mode: driverpb.NetworkIsolationSpec_GROUP, Path: n.path}
}

// joinNetwork makes, or finds again, the network that the group asks for.
func (r *allocRunner) joinNetwork(ctx context.Context) error {
	a := r.current()
	group := a.Job.LookupTaskGroup(a.TaskGroup)
	if len(group.Networks) == 0 || group.Networks[0].Mode != "none" {
		return nil
	}
	for _, t := range group.Tasks {
		if err := r.client.supportsGroupNetwork(ctx, t); err != nil {
			return err
		}
	}
	path := filepath.Join(netnsDir, r.id)
	if err := makeNamespace(path); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	r.mu.Lock()
	r.network = &network{path: path}
	r.mu.Unlock()
	return nil
}

func (c *Client) supportsGroupNetwork(ctx context.Context, t *api.Task) error {
	h, err := c.Drivers.Host(t.Driver)
	if err != nil {
		return err
	}
	i, err := h.Instance(ctx)
	if err != nil {
		return err
	}
	can, err := i.Capabilities(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(can.GetNetworkIsolationModes(), driverpb.NetworkIsolationSpec_GROUP) {
		return fmt.Errorf("task %s does not support %q networking mode", t.Name, "none")
	}
	return nil
}

// formerNetwork finds the network that an earlier agent made for an allocation, or nil.
func formerNetwork(allocID string) *network {
	path := filepath.Join(netnsDir, allocID)
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return &network{path: path}
}

func (r *allocRunner) leaveNetwork() {
	r.mu.Lock()
	n := r.network
	r.network = nil
	r.mu.Unlock()
	if n == nil {
		return
	}
	_ = unix.Unmount(n.path, unix.MNT_DETACH)
	if err := os.Remove(n.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.client.Log.Warn("network namespace not removed", "path", n.path, "error", err)
	}
}

// makeNamespace binds a new network namespace to path, once, and brings up its
// loopback interface.
func makeNamespace(path string) error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	var stat unix.Statfs_t
	if unix.Statfs(path, &stat) == nil && (stat.Type == unix.NSFS_MAGIC || stat.Type == unix.PROC_SUPER_MAGIC) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		// The thread is in another namespace for good: it is not unlocked, so that it
		// ends with this goroutine.
		runtime.LockOSThread()
		failed <- bindNamespace(path)
	}()
	if err := <-failed; err != nil {
		_ = os.Remove(path)
		return err
	}
	return nil
}

func bindNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "none", unix.MS_BIND, ""); err != nil {
		return err
	}
	return loopbackUp()
}

// loopbackUp sets IFF_UP on lo (netdevice(7)).
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
