// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// X4, X5: what a job binds is inside under its target, by a mount that is undone at the
// end, and what was bound stays.
func TestX5Volumes(t *testing.T) {
	b := boundary(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "data/marker"), nil, 0o644))
	order := newOrder(t, emptyImage(t, b))
	order.Volumes = []isolation.Volume{{Base: dir, Path: "data", Target: "/data", ReadOnly: true}, {Base: dir, Path: "data/marker", Target: "/one file"}}
	s := launched(t, b, order)
	inside := fmt.Sprintf("/proc/%d/root", s.Session().PID)
	for _, path := range []string{"/data/marker", "/one file"} {
		if _, err := os.Stat(inside + path); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.Session().PID))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[4] == "/data" && !strings.HasPrefix(fields[5], "ro") {
			t.Errorf("not read-only: %s", line)
		}
	}
	if len(mountsBelow(t, order.Scratch)) != 2 {
		t.Errorf("held by %v", mountsBelow(t, order.Scratch))
	}
	must(t, s.Kill(bounded(t)))
	must(t, s.Remove(bounded(t)))
	if left := mountsBelow(t, order.Scratch); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "data/marker")); err != nil {
		t.Errorf("what was bound is gone: %v", err)
	}
}

// A bind that cannot be had leaves neither a container nor a mount.
func TestX5VolumeGone(t *testing.T) {
	b := boundary(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	must(t, os.Symlink("/etc", filepath.Join(dir, "swapped")))
	order := newOrder(t, emptyImage(t, b))
	order.Volumes = []isolation.Volume{{Base: dir, Path: "data", Target: "/data"}, {Base: dir, Path: "swapped", Target: "/swapped"}}
	_, err := b.Launch(bounded(t), order)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "swapped") {
		t.Errorf("error %v", err)
	}
	if left := append(containersOf(t, b, order.Instance), mountsBelow(t, order.Scratch)...); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// X37: a screen that wants a network gets the bridge on which containers do not reach
// each other, made once, and never one of that name on which they do.
func TestX37Bridge(t *testing.T) {
	b := boundary(t)
	b.bridge = "botscreen-test-" + newInstance()[:12]
	order := newOrder(t, emptyImage(t, b))
	order.Network = screen.NetworkBridge
	s, err := b.Launch(bounded(t), order)
	if err != nil {
		t.Skipf("needs an engine that can make bridges: %v", err)
	}
	t.Cleanup(func() { _ = b.api.NetworkRemove(bounded(t), b.bridge) })
	t.Cleanup(func() { _ = s.Kill(bounded(t)); _ = s.Remove(bounded(t)) })
	found, err := b.api.ContainerInspect(bounded(t), s.Record().Container)
	must(t, err)
	if len(found.NetworkSettings.Networks) != 1 || found.NetworkSettings.Networks[b.bridge] == nil || len(found.HostConfig.PortBindings) > 0 {
		t.Errorf("networks %v, ports %v", found.NetworkSettings.Networks, found.HostConfig.PortBindings) // DOC-12
	}
	bridge, err := b.ensureBridge(bounded(t))
	must(t, err)
	t.Cleanup(func() {
		if program, err := iptables(); err == nil {
			for _, rule := range shieldRules(deviceOf(bridge)) {
				_ = run(context.Background(), program, "-D", rule) // not there where it could not be made
			}
		}
	})
	must(t, s.Kill(bounded(t)))
	must(t, s.Remove(bounded(t)))
	must(t, b.api.NetworkRemove(bounded(t), b.bridge))
	_, err = b.api.NetworkCreate(bounded(t), b.bridge, network.CreateOptions{Driver: "bridge"})
	must(t, err)
	order = newOrder(t, order.Image)
	order.Network = screen.NetworkBridge
	_, err = b.Launch(bounded(t), order)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "reach each other") {
		t.Errorf("error %v", err)
	}
}

// DOC-07: no label of a job makes a container look like Nomad's, or like another run's.
func TestDOC07Labels(t *testing.T) {
	order := isolation.Order{
		ID: screen.ID{Namespace: "default", Profile: "bot"}, Instance: "right",
		Labels:    map[string]string{"job": "desk"},
		OwnLabels: map[string]string{"team": "red", "botscreen.instance": "forged", "botscreen.job": "forged"},
	}
	got := labels(order, "us")
	if got["team"] != "red" || got[labelInstance] != "right" || got["botscreen.job"] != "desk" || got[labelOwner] != "us" {
		t.Errorf("labels %v", got)
	}
}
