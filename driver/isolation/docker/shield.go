// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
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

// ruleMark is the comment by which a rule is known to be ours.
const ruleMark = "botscreen"

// shieldRules keep what is on a bridge away from the node and from what answers on
// link-local addresses: a cloud's metadata service hands out the node's credentials
// (X37). DOCKER-USER is the chain that engines leave to others, for what they forward.
func shieldRules(device string) [][]string {
	mark := []string{"-m", "comment", "--comment", ruleMark, "-j", "DROP"}
	return [][]string{
		append([]string{"DOCKER-USER", "-i", device, "-d", "169.254.0.0/16"}, mark...),
		append([]string{"INPUT", "-i", device}, mark...),
	}
}

// shield makes the rules where they are missing. They stay as long as the bridge does.
func shield(ctx context.Context, device string) error {
	if _, err := net.InterfaceByName(device); err != nil {
		return fmt.Errorf("the bridge %s is not in this driver's network", device)
	}
	return errors.Join(quietIPv6(device), shieldIPv4(ctx, device))
}

func shieldIPv4(ctx context.Context, device string) error {
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

// quietIPv6 makes the node deaf to IPv6 on a bridge: a container there has none, but for
// what its engine makes of that, and the node has link-local addresses on every device.
// The kernel drops what comes in before any rule sees it, and the setting goes with the
// device (ip-sysctl, disable_ipv6). A kernel without IPv6 has no such file.
func quietIPv6(device string) error {
	f, err := os.OpenFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}

// unshield removes the rules of bridges that are gone: an engine never gives a name again,
// so they would stay for ever.
func unshield(ctx context.Context) error {
	program, err := iptables()
	if err != nil {
		return nil // and so there is no rule of ours
	}
	text, err := output(ctx, program, "-S")
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	var errs []error
	for _, device := range shielded(text) {
		if _, err := net.InterfaceByName(device); err == nil {
			continue
		}
		for _, rule := range shieldRules(device) {
			for run(ctx, program, "-C", rule) == nil { // two starts at once may have made two
				if err := run(ctx, program, "-D", rule); err != nil {
					errs = append(errs, fmt.Errorf("remove the rules of %s: %w", device, err))
					break
				}
			}
		}
	}
	return errors.Join(errs...)
}

// shielded are the devices that rules of ours name, in what `iptables -S` says: a rule a
// line, as it was given (iptables(8)).
func shielded(text string) []string {
	var devices []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		device, mark := wordAfter(words, "-i"), wordAfter(words, "--comment")
		if mark == ruleMark && device != "" && !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	return devices
}

func wordAfter(words []string, option string) string {
	if i := slices.Index(words, option); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
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
	_, err := output(ctx, program, append([]string{action}, rule...)...)
	return err
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-w", "5"}, args...)...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, isolation.OneLine(string(out)))
	}
	return string(out), nil
}

// guard shields the bridge of an order that wants it, and says what a screen on it reaches
// where that could not be done.
func (b *Boundary) guard(ctx context.Context, found network.Inspect) (warnings []string) {
	const reachable = "metadata: reachable (no rule keeps the screen's bridge from the node: %s)"
	if b.elsewhere.Load() {
		return []string{fmt.Sprintf(reachable, "the engine is not on this node")}
	}
	if err := shield(ctx, deviceOf(found)); err != nil {
		return []string{fmt.Sprintf(reachable, strings.TrimSuffix(isolation.OneLine(err.Error()), "."))}
	}
	return nil
}
