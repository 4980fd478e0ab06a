// SPDX-License-Identifier: MPL-2.0

package fingerprint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/requirements"
)

// fakeProbe answers with what is in it, after release if there is one.
type fakeProbe struct {
	kind    string
	report  atomic.Pointer[Report]
	calls   atomic.Int64
	release chan struct{}
}

func newProbe(kind string, r Report) *fakeProbe {
	p := &fakeProbe{kind: kind}
	p.report.Store(&r)
	return p
}

// hanging is a probe that does not even end with its context until it is released.
func hanging(kind string) *fakeProbe {
	p := newProbe(kind, Report{Ready: true})
	p.release = make(chan struct{})
	return p
}

func (p *fakeProbe) Kind() string { return p.kind }

func (p *fakeProbe) Check(context.Context) Report {
	p.calls.Add(1)
	if p.release != nil {
		<-p.release
	}
	return *p.report.Load()
}

// fakeNode is a node of files: 4000 MB available, three display numbers, no programs.
func fakeNode(t *testing.T, probes ...Probe) *Fingerprinter {
	t.Helper()
	root := t.TempDir()
	for path, data := range map[string]string{
		"proc/net/unix":     "Num RefCount Protocol Flags Type St Inode Path\n",
		"proc/meminfo":      "MemTotal: 8192000 kB\nMemAvailable: 4096000 kB\n",
		"proc/self/cgroup":  "",
		"sys/fs/cgroup/x/y": "",
		"tmp/x":             "",
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return &Fingerprinter{
		Version:      "1.2.3",
		Probes:       probes,
		Order:        []string{Docker, Apptainer},
		Requirements: requirements.Host{Root: root},
		Displays:     display.Host{ProcFS: filepath.Join(root, "proc"), TmpDir: filepath.Join(root, "tmp")},
		Band:         display.Band{First: 40, Last: 42},
		Memory:       memory.Prober{Host: cgroup.Host{ProcFS: filepath.Join(root, "proc"), SysFS: filepath.Join(root, "sys")}},
	}
}

// watch runs Watch in the test's bubble and returns its snapshots.
func watch(t *testing.T, f *Fingerprinter) <-chan Snapshot {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	snapshots := make(chan Snapshot, 100)
	done := make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, func(s Snapshot) error {
			snapshots <- s
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
	return snapshots
}

func attribute(s Snapshot, name string) string {
	return s.Attributes[prefix+name].Text
}

func TestFirstSnapshotComesAtOnce(t *testing.T) {
	f := fakeNode(t, newProbe(Docker, Report{Ready: true, Version: "27.1.1"}), newProbe(Apptainer, Report{Reason: "apptainer is not installed"}))
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := <-watch(t, f)
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %s with nothing to wait for", took)
		}
		want := map[string]Value{
			"version": text("1.2.3"), "isolations": text("docker"),
			"isolation.docker": text("ready"), "isolation.apptainer": text("apptainer is not installed"),
			"isolation.host": text("this plugin does not have it"),
			"docker.version": text("27.1.1"), "apptainer.version": text(""), "xvnc.version": text(""),
			"browser": text("none"), "browser.executable": text(""), "user_namespaces": text("the kernel has none. Fix: Boot a kernel with CONFIG_USER_NS."), "missing": text("Xvnc,dbus-daemon,xfwm4,xfdesktop,xfce4-panel,xfsettingsd"),
			"displays.free": number(3), "memory.available_mb": number(4000),
		}
		for name, value := range want {
			if got, ok := s.Attributes[prefix+name]; !ok || got != value {
				t.Errorf("%s = %+v, %v, want %+v", name, got, ok, value)
			}
		}
		if len(s.Attributes) != len(want) {
			t.Errorf("%d attributes, want %d", len(s.Attributes), len(want))
		}
		if want := "Ready: docker; apptainer: apptainer is not installed; host: this plugin does not have it."; s.Description != want {
			t.Errorf("got  %q\nwant %q", s.Description, want)
		}
		if s.Health != Healthy {
			t.Errorf("health %s", s.Health)
		}
	})
}

func TestHangingProbeDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docker := hanging(Docker)
		f := fakeNode(t, docker, newProbe(Host, Report{Ready: true}))
		begin := time.Now()
		snapshots := watch(t, f)
		s := <-snapshots
		if took := time.Since(begin); took >= time.Second {
			t.Errorf("first snapshot after %s, want less than a second", took)
		}
		if attribute(s, "isolation.docker") != "probing" || attribute(s, "isolations") != "host" || s.Health != Healthy {
			t.Errorf("first: %+v", s)
		}
		s = <-snapshots
		if took := time.Since(begin); took != checkLimit {
			t.Errorf("second snapshot after %s, want %s", took, checkLimit)
		}
		if got := attribute(s, "isolation.docker"); got != "no answer within 10s" {
			t.Errorf("docker: %q", got)
		}
		// It hangs for five rounds: it is not started a second time on top of the first.
		time.Sleep(5 * DefaultPeriod)
		synctest.Wait()
		if got := docker.calls.Load(); got != 1 || len(snapshots) != 0 {
			t.Errorf("%d calls, %d snapshots, want 1 and 0", got, len(snapshots))
		}
		// Its late answer counts for nothing, but it is asked again at once.
		close(docker.release)
		s = <-snapshots
		if attribute(s, "isolations") != "docker,host" || docker.calls.Load() != 2 {
			t.Errorf("released: %+v after %d calls", s, docker.calls.Load())
		}
	})
}

func TestOnlyAndAllChangesAreSent(t *testing.T) {
	docker := newProbe(Docker, Report{Ready: true})
	f := fakeNode(t, docker)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		snapshots := watch(t, f)
		<-snapshots
		time.Sleep(3*DefaultPeriod + time.Second)
		synctest.Wait()
		if len(snapshots) != 0 || docker.calls.Load() != 4 {
			t.Fatalf("%d snapshots and %d looks after three quiet periods, want 0 and 4", len(snapshots), docker.calls.Load())
		}
		docker.report.Store(&Report{Reason: "docker does not answer (connection refused)"})
		s := <-snapshots
		if took := time.Since(begin); took != 4*DefaultPeriod {
			t.Errorf("noticed after %s, want at the next period", took)
		}
		if s.Health != Unhealthy || !strings.HasPrefix(s.Description, "No isolation is ready; docker: docker does not answer (connection refused); ") {
			t.Errorf("got %s, %q", s.Health, s.Description)
		}
		// Changed does not wait for the period.
		now := time.Now()
		docker.report.Store(&Report{Ready: true})
		f.Changed()
		if s := <-snapshots; s.Health != Healthy || time.Since(now) != 0 {
			t.Errorf("after Changed: %s, %s later", s.Health, time.Since(now))
		}
		f.Changed()
		f.Changed()
		synctest.Wait()
		if len(snapshots) != 0 {
			t.Error("a look that found nothing new was sent")
		}
	})
}

func TestWatchEndsWithItsReceiver(t *testing.T) {
	f := fakeNode(t)
	gone := errors.New("stream closed")
	if err := f.Watch(context.Background(), func(Snapshot) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if err := f.Watch(ctx, func(Snapshot) error { return nil }); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestReadyIsInThePluginsOrder(t *testing.T) {
	f := facts{reports: map[string]Report{Docker: {Ready: true}, Apptainer: {Ready: true}, Host: {Ready: true}}}
	for want, order := range map[string][]string{
		"docker,apptainer,host": nil,
		"apptainer,docker,host": {Apptainer},
		"host,docker,apptainer": {Host, Docker, Host, "chroot"},
	} {
		if got := strings.Join(f.ready(order), ","); got != want {
			t.Errorf("order %v: %s, want %s", order, got, want)
		}
	}
}

func TestMemoryFigureStaysWhileItIsAboutRight(t *testing.T) {
	var f facts
	for i, step := range []struct{ mb, want int64 }{
		{8000, 8000},
		{8400, 8000}, // less than a sixteenth
		{7600, 8000},
		{8501, 8501},
		{1700, 1700},
		{1600, 1700},
		{1535, 1535}, // across the floor
		{1540, 1540}, // and back
		{1500, 1500},
		{1400, 1500},
		{1371, 1371}, // a step of 128
	} {
		f.setMemory(memory.Reading{Known: true, AvailableBytes: uint64(step.mb) * memory.MiB})
		if f.memory != number(step.want) {
			t.Errorf("step %d: %d MB read, %+v shown, want %d", i, step.mb, f.memory, step.want)
		}
		if low := f.memoryReason != ""; low != (step.mb < memory.DefaultFloorMB) {
			t.Errorf("step %d: reason %q", i, f.memoryReason)
		}
	}
	f.setMemory(memory.Reading{})
	if !f.memory.empty() || f.memoryReason == "" {
		t.Errorf("unknown: %+v, %q", f.memory, f.memoryReason)
	}
}

func TestDescriptionNamesWhatIsShort(t *testing.T) {
	f := facts{reports: map[string]Report{Host: {Ready: true}}, displays: number(0)}
	f.setMemory(memory.Reading{Known: true, AvailableBytes: 1000 * memory.MiB})
	got := f.describe([]string{Host})
	for _, want := range []string{"Ready: host", "none free, widen `displays`", "only 1000 MB available on the host"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	f.setDisplays(0, errors.New("open /proc/net/unix: gone"))
	if got := f.describe(nil); !strings.Contains(got, "displays: open /proc/net/unix: gone") || !strings.HasPrefix(got, "No isolation is ready") {
		t.Errorf("got %q", got)
	}
}

func TestReasonsAreOneSafeLine(t *testing.T) {
	f := facts{reports: map[string]Report{
		Docker:    {Reason: "a\nb\x1b[31m \u202ec\xff\t d" + strings.Repeat("é", 1000)},
		Apptainer: {},
	}}
	got := f.report(Docker).Reason
	if !strings.HasPrefix(got, "a b[31m c d") || len(got) > maxReason+len("…") {
		t.Errorf("got %q", got)
	}
	if got := f.report(Apptainer).Reason; got == "" {
		t.Error("a report without a reason stays without one")
	}
}

func TestHostProbe(t *testing.T) {
	empty := requirements.Host{Root: t.TempDir()}
	if r := NewHostProbe(empty, false).Check(t.Context()); r.Ready || !strings.Contains(r.Reason, "`allow_unsandboxed_host = true`") {
		t.Errorf("not allowed: %+v", r)
	}
	if r := NewHostProbe(empty, true).Check(t.Context()); r.Ready || !strings.Contains(r.Reason, "Xvnc, dbus-daemon, xfwm4") {
		t.Errorf("nothing installed: %+v", r)
	}
	// All programs are there, but anybody could have put them there.
	if os.Geteuid() == 0 {
		for _, p := range requirements.Programs {
			path := filepath.Join(empty.Root, "usr/bin", p.Name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\necho Xvnc TigerVNC 9.9\n"), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		if r := NewHostProbe(empty, true).Check(t.Context()); r.Ready || !strings.Contains(r.Reason, "is not run by root") {
			t.Errorf("untrusted Xvnc: %+v", r)
		}
	}
	here := requirements.Host{}
	if len(here.Missing().Required()) > 0 {
		t.Skip("this machine has no desktop programs")
	}
	if r := NewHostProbe(here, true).Check(t.Context()); !r.Ready {
		t.Errorf("this machine: %+v", r)
	}
}

// BRW-11: a node on which AppArmor keeps user namespaces from browsers says so, and what
// would change it.
func TestBRW11NamespacesAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeNode(t, newProbe(Host, Report{Ready: true}))
		place := func(name, text string) {
			path := filepath.Join(f.Requirements.Root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		place("/proc/self/ns/user", "")
		snapshots := watch(t, f)
		if s := <-snapshots; attribute(s, "user_namespaces") != "allowed" || strings.Contains(s.Description, "namespaces") {
			t.Errorf("a node like most: %+v", s)
		}
		place("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
		s := <-snapshots
		for _, said := range []string{attribute(s, "user_namespaces"), s.Description} {
			if !strings.Contains(said, "kernel.apparmor_restrict_unprivileged_userns is 1. Fix: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns`") {
				t.Errorf("Ubuntu: %s", said)
			}
		}
	})
}
