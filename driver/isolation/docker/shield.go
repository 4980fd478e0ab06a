// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/docker/docker/api/types/network"

	"github.com/botscreen/botscreen/driver/isolation"
)

// optionDevice is the name of a bridge's device, where it was given one.
const optionDevice = "com.docker.network.bridge.name"

// deviceOf is the bridge on this node.
func deviceOf(found network.Inspect) string {
	if name := found.Options[optionDevice]; name != "" {
		return name
	}
	return "br-" + found.ID[:min(12, len(found.ID))]
}

// shieldRules keep what is on a bridge away from the node and from what answers on
// link-local addresses: a cloud's metadata service hands out the node's credentials
// (X37). DOCKER-USER is the chain that engines leave to others, for what they forward.
func shieldRules(device string) [][]string {
	return [][]string{
		{"DOCKER-USER", "-i", device, "-d", "169.254.0.0/16", "-j", "DROP"},
		{"INPUT", "-i", device, "-j", "DROP"},
	}
}

// shield makes the rules where they are missing. They stay as long as the bridge does.
func shield(ctx context.Context, device string) error {
	program, err := iptables()
	if err != nil {
		return err
	}
	for _, rule := range shieldRules(device) {
		if run(ctx, program, "-C", rule) == nil {
			continue
		}
		if err := run(ctx, program, "-I", rule); err != nil {
			return err
		}
	}
	return nil
}

// iptables is the node's program; what root is to run is root's alone (X22).
func iptables() (string, error) {
	for _, path := range []string{"/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables"} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			return "", fmt.Errorf("%s can be changed by others than root", path)
		}
		return path, nil
	}
	return "", errors.New("iptables is not installed")
}

func run(ctx context.Context, program, action string, rule []string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-w", "5", action}, rule...)...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, isolation.OneLine(string(out)))
	}
	return nil
}

// guard shields the bridge of an order that wants it, and says what a screen on it reaches
// where that could not be done.
func (b *Boundary) guard(ctx context.Context, found network.Inspect) (warnings []string) {
	const reachable = "metadata: reachable (no rule keeps the screen's bridge from the node: %s)"
	if b.elsewhere.Load() {
		return []string{fmt.Sprintf(reachable, "the engine is not on this node")}
	}
	if err := shield(ctx, deviceOf(found)); err != nil {
		return []string{fmt.Sprintf(reachable, strings.TrimSuffix(err.Error(), "."))}
	}
	return nil
}
