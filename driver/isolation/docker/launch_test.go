// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
)

// X30: of an image that wants everything nothing counts but PATH.
func TestX30HostileImage(t *testing.T) {
	b := boundary(t)
	reference := emptyImage(t, b,
		"USER root", "ENTRYPOINT /evil", "CMD evil", "WORKDIR /nowhere", "EXPOSE 5900",
		"ENV LD_PRELOAD=/evil.so", "ENV DOCKER_HOST=tcp://evil", "ENV PATH=/image/bin:/usr/bin",
		"HEALTHCHECK CMD evil", "VOLUME /var/evil", "VOLUME /tmp/.X11-unix",
		"LABEL botscreen.instance=forged")
	order := newOrder(t, reference)
	s := launched(t, b, order)
	found, err := b.api.ContainerInspect(t.Context(), s.record.Container)
	must(t, err)
	awaitExec(t, s.record.Session.PID)
	status := readStatus(t, s.record.Session.PID)
	uid := strconv.Itoa(int(order.Account.UID))
	for field, want := range map[string][]string{
		"Uid": {uid, uid, uid, uid}, "Gid": {uid, uid, uid, uid},
		"CapEff": {"0000000000000000"}, "CapBnd": {"0000000000000000"}, "NoNewPrivs": {"1"}, "Seccomp": {"2"},
	} {
		if !slices.Equal(status[field], want) {
			t.Errorf("%s is %v, want %v", field, status[field], want)
		}
	}
	for _, group := range status["Groups"] {
		if group != uid {
			t.Errorf("supplementary group %s", group)
		}
	}
	if found.State.Health != nil && found.State.Health.Status != container.NoHealthcheck {
		t.Errorf("a health check runs: %+v", found.State.Health)
	}
	for _, m := range found.Mounts {
		if m.Type == "volume" {
			t.Errorf("an anonymous volume at %s", m.Destination)
		}
	}
	if len(found.HostConfig.PortBindings)+len(found.NetworkSettings.Ports) > 0 && found.HostConfig.PublishAllPorts {
		t.Errorf("published ports %v", found.NetworkSettings.Ports) // DOC-12
	}
	if found.Config.StopSignal != "SIGTERM" || found.Config.WorkingDir != "/" {
		t.Errorf("signal %s, directory %s", found.Config.StopSignal, found.Config.WorkingDir)
	}
	checkEnvironment(t, s.record.Session.PID)
}

// awaitExec waits until a container's first process is no longer the engine's own, which it
// is for a moment behind the start.
func awaitExec(t *testing.T, pid int) {
	t.Helper()
	for ctx := bounded(t); ctx.Err() == nil; runtime.Gosched() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		must(t, err)
		if first, _, _ := strings.Cut(string(line), "\x00"); filepath.Base(first) != "runc" {
			return
		}
	}
	t.Fatalf("process %d does not become the session", pid)
}

func checkEnvironment(t *testing.T, pid int) {
	t.Helper()
	// The session is not dumpable: root alone reads it.
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	must(t, err)
	for entry := range strings.SplitSeq(strings.Trim(string(text), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "PATH":
			if value != "/image/bin:/usr/bin" {
				t.Errorf("PATH is %s", value)
			}
		case "LANG", "HOME", "HOSTNAME":
		default:
			t.Errorf("the session has %s", name) // P7, X21: neither the image's nor the node's
		}
	}
}

func readStatus(t *testing.T, pid int) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	must(t, err)
	fields := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		name, values, _ := strings.Cut(line, ":")
		fields[name] = strings.Fields(values)
	}
	return fields
}

// P7, X4, DOC-12: what confines a container, as the engine has it.
func TestP7Confinement(t *testing.T) {
	b := boundary(t)
	order := newOrder(t, emptyImage(t, b))
	order.Limits = cgroup.Limits{MemoryBytes: 512 << 20, CPUShares: 333}
	s := launched(t, b, order)
	found, err := b.api.ContainerInspect(t.Context(), s.record.Container)
	must(t, err)
	c := found.HostConfig
	if c.Privileged || len(c.CapAdd) > 0 || len(c.Devices) > 0 || c.PidMode != "" || c.UTSMode != "" || c.NetworkMode != "none" || c.IpcMode != "private" {
		t.Errorf("%+v", c)
	}
	if *c.PidsLimit != 2048 || c.ShmSize != 1<<30 || c.Memory != 512<<20 || c.MemorySwap != 512<<20 || c.CPUShares != 333 || c.OomScoreAdj != oomScore {
		t.Errorf("limits %+v shm %d oom %d", c.Resources, c.ShmSize, c.OomScoreAdj)
	}
	var sources []string
	for _, m := range found.Mounts {
		if m.Type == "bind" {
			sources = append(sources, m.Source)
			writable := m.Source == order.Home || m.Source == order.XDir
			if m.RW != writable || m.Propagation != "rprivate" {
				t.Errorf("%s is writable: %t, propagates %s", m.Source, m.RW, m.Propagation)
			}
		}
	}
	slices.Sort(sources)
	want := []string{order.Binary, order.DialDir, order.XDir, order.Home, filepath.Join(order.Scratch, "passwd"), filepath.Join(order.Scratch, "group"), filepath.Join(order.Scratch, "machine-id")}
	slices.Sort(want)
	if !slices.Equal(sources, want) {
		t.Errorf("mounted %v, want %v", sources, want)
	}
	labels := found.Config.Labels
	if labels["botscreen.profile"] != string(order.ID.Profile) || labels["botscreen.job"] != "tests" || labels[labelInstance] != order.Instance {
		t.Errorf("labels %v", labels)
	}
	for name := range labels { // DOC-07
		if !strings.HasPrefix(name, "botscreen.") {
			t.Errorf("label %s", name)
		}
	}
}

// Refusals come before anything is made, with what would change them (P1, P10, P11).
func TestRefusals(t *testing.T) {
	b := boundary(t)
	reference := emptyImage(t, b)
	labelled := emptyImage(t, b, "LABEL com.hashicorp.nomad.alloc_id=x")
	for name, c := range map[string]struct {
		change func(*isolation.Order)
		words  []string
	}{
		"no image":       {func(o *isolation.Order) { o.Image = "" }, []string{"`image`", "`default_image`"}},
		"unknown image":  {func(o *isolation.Order) { o.Image = "no.such/image:1" }, []string{"no.such/image:1", "docker pull"}},
		"Nomad's labels": {func(o *isolation.Order) { o.Image = labelled }, []string{"com.hashicorp.nomad.alloc_id"}},
		"root":           {func(o *isolation.Order) { o.Account.UID = 0 }, []string{"never root"}},
		"root's group":   {func(o *isolation.Order) { o.Account.GID = 0 }, []string{"never root"}},
		"inherited":      {func(o *isolation.Order) { o.Account.Inherited = true }, []string{"runs as root"}},
		"network":        {func(o *isolation.Order) { o.NetworkNamespace = "/run/netns/x" }, []string{"network { mode }"}},
	} {
		t.Run(name, func(t *testing.T) {
			order := newOrder(t, reference)
			c.change(&order)
			_, err := b.Launch(bounded(t), order)
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("%v", err)
			}
			for _, word := range c.words {
				if !strings.Contains(refused.Sentence(), word) {
					t.Errorf("%q does not name %s", refused.Sentence(), word)
				}
			}
			if left := containersOf(t, b, order.Instance); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// A container that cannot start, or whose start is called off, leaves nothing.
func TestFailedLaunchLeavesNothing(t *testing.T) {
	b := boundary(t)
	reference := emptyImage(t, b)
	t.Run("the session cannot run", func(t *testing.T) {
		order := newOrder(t, reference)
		order.Binary = filepath.Join(order.Scratch, "no-program")
		must(t, os.WriteFile(order.Binary, nil, 0o600))
		if _, err := b.Launch(bounded(t), order); err == nil {
			t.Error("it started")
		}
		if left := containersOf(t, b, order.Instance); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
	t.Run("called off", func(t *testing.T) {
		order := newOrder(t, reference)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Launch(ctx, order); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if left := containersOf(t, b, order.Instance); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}

// X29: the groups an operator allows, and no others.
func TestX29Groups(t *testing.T) {
	b := boundary(t)
	order := newOrder(t, emptyImage(t, b))
	order.Account.Groups = []uint32{12345, 23456}
	launched(t, b, order) // Launch reads them back
	status := "Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nGroups:\t%s\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
		"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	account := isolation.Account{UID: 7, GID: 7, Groups: []uint32{8}}
	for groups, fits := range map[string]bool{"8": true, "7 8": true, "7": false, "0 8": false, "8 42": false, "": false} {
		if err := checkStatus(fmt.Sprintf(status, groups), account); (err == nil) != fits {
			t.Errorf("groups %q: %v", groups, err)
		}
	}
	for _, field := range []string{"Uid:\t7", "Gid:\t7", "CapPrm:\t0", "CapEff:\t0", "CapBnd:\t0", "CapAmb:\t0", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		wrong := strings.Replace(fmt.Sprintf(status, "8"), field, field[:len(field)-1]+"9", 1)
		if err := checkStatus(wrong, account); err == nil {
			t.Errorf("another %s passes", field)
		}
	}
}

// X8: nothing of the environment sends screens to another engine.
func TestX8Environment(t *testing.T) {
	for name, value := range map[string]string{
		"DOCKER_HOST": "tcp://127.0.0.1:1", "DOCKER_API_VERSION": "1.12", "DOCKER_CERT_PATH": "/nowhere",
		"DOCKER_TLS_VERIFY": "1", "DOCKER_CONTEXT": "evil", "DOCKER_CONFIG": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	b, err := New("", "x")
	must(t, err)
	defer b.Close()
	if host := b.api.DaemonHost(); host != DefaultEndpoint {
		t.Errorf("talks to %s", host)
	}
	real := boundary(t)
	if h := real.Check(bounded(t)); !h.Ready || h.Version == "" {
		t.Errorf("%+v", h)
	}
}

func TestEndpoints(t *testing.T) {
	for _, endpoint := range []string{"tcp://1.2.3.4:2375", "ssh://host", "/var/run/docker.sock", "unix://", "npipe:////./pipe", "://"} {
		_, err := New(endpoint, "x")
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "unix:///") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// X38: a container that carries a run's instance or its name is not that run.
func TestX38ForgedContainers(t *testing.T) {
	b := boundary(t)
	reference := emptyImage(t, b)
	ours := launched(t, b, newOrder(t, reference))
	stranger := launched(t, b, newOrder(t, reference))
	record := ours.Record()
	record.Container = stranger.record.Container // by id, of another instance
	if s, err := b.Adopt(bounded(t), record); err == nil {
		t.Errorf("adopted %+v", s.Record())
	}
	if !stranger.record.Session.Alive() || !ours.record.Session.Alive() {
		t.Error("a refused adoption killed something")
	}
}

// Containers whose run nobody knows go after a grace, and nobody else's ever.
func TestSweep(t *testing.T) {
	b := boundary(t)
	reference := emptyImage(t, b)
	lost, kept := launched(t, b, newOrder(t, reference)), launched(t, b, newOrder(t, reference))
	other := boundary(t)
	foreign := launched(t, other, newOrder(t, reference))
	keep := func(instance string) bool { return instance == kept.record.Instance }
	if removed, err := b.Sweep(bounded(t), keep, limit); err != nil || len(removed) > 0 {
		t.Errorf("within the grace: %v %v", removed, err)
	}
	removed, err := b.Sweep(bounded(t), keep, 0)
	must(t, err)
	if len(removed) != 1 || !strings.HasSuffix(removed[0], lost.record.Instance[:8]) {
		t.Errorf("removed %v", removed)
	}
	awaitDone(t, lost)
	if !kept.record.Session.Alive() || !foreign.record.Session.Alive() {
		t.Error("a container of another owner or of a known run was removed")
	}
}
