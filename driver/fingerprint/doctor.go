// SPDX-License-Identifier: MPL-2.0

package fingerprint

import (
	"context"
	"fmt"
	"os"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/requirements"
)

// Diagnosis is what `nomad-driver-botscreen doctor -json` prints. Other programs read it.
type Diagnosis struct {
	// Isolations are those that a job may use here now.
	Isolations []string `json:"isolations"`
	// Checks are everything that was looked at, always the same names in the same order.
	Checks []requirements.Check `json:"checks"`
}

// Diagnose looks at everything once. It makes and removes one empty cgroup, to see whether that works.
func (f *Fingerprinter) Diagnose(ctx context.Context) Diagnosis {
	r := newRound(f)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.start(ctx)
	for r.pending() {
		select {
		case a := <-r.answers:
			r.take(ctx, a)
		case <-ctx.Done():
			return Diagnosis{Isolations: []string{}, Checks: []requirements.Check{}}
		}
	}
	d := Diagnosis{Isolations: append([]string{}, r.facts.ready(f.Order)...)}
	for _, kind := range kinds {
		d.Checks = append(d.Checks, checkIsolation(kind, r.facts.report(kind)))
	}
	d.Checks = append(d.Checks,
		f.Requirements.CheckPrograms(),
		checkXvnc(ctx, f.Requirements),
		checkBrowser(ctx, f.Requirements),
		checkSocketDir(f.Displays),
		checkDisplays(f.Displays, f.Band),
		checkMemory(f.Memory.Read(ctx)),
		checkCgroups(f.Memory.Host),
		f.Requirements.CheckUserNamespaces(),
		f.Requirements.CheckShm(),
	)
	return d
}

func checkIsolation(kind string, report Report) requirements.Check {
	c := requirements.Check{Name: "isolation_" + kind, OK: report.Ready, Found: "ready"}
	if report.Version != "" {
		c.Found = "ready, version " + plain(report.Version)
	}
	if !report.Ready {
		c.Found = "not ready"
		c.Why = report.Reason
		c.Fix = fmt.Sprintf("Needed only for jobs with isolation = %q.", kind)
	}
	return c
}

func checkXvnc(ctx context.Context, host requirements.Host) requirements.Check {
	c := requirements.Check{Name: "xvnc"}
	server, err := host.Xvnc(ctx)
	if err == nil {
		c.Found = server.Vendor + " " + server.Version
		err = server.Supported()
	} else {
		c.Found = "none that answers"
	}
	if c.OK = err == nil; !c.OK {
		c.Why = err.Error()
		c.Fix = "Install TigerVNC's Xvnc; the check `programs` has the command."
	}
	return c
}

func checkBrowser(ctx context.Context, host requirements.Host) requirements.Check {
	browser, err := host.Browser(ctx)
	c := requirements.Check{Name: "browser", OK: browser.Name != requirements.NoBrowser, Found: browser.Name}
	if c.OK {
		c.Found += " (" + plain(browser.Path) + ")"
		return c
	}
	c.Why = "Host screens have no browser on this node."
	if err != nil {
		c.Why += " " + plain(err.Error())
	}
	c.Fix = "Install chromium or google-chrome from a package."
	return c
}

func checkSocketDir(host display.Host) requirements.Check {
	c := requirements.Check{Name: "x11_unix", OK: true, Found: "right"}
	switch err := host.CheckSocketDir().(type) {
	case nil:
	case *display.SocketDirError:
		c.OK, c.Found, c.Why, c.Fix = false, err.Error(), err.Sentence(), err.Fix
	default:
		c.OK, c.Found, c.Why = false, err.Error(), "X servers cannot make their sockets there."
		c.Fix = "Make /tmp a directory with mode 1777."
	}
	return c
}

func checkDisplays(host display.Host, band display.Band) requirements.Check {
	c := requirements.Check{Name: "displays"}
	free, err := host.FreeIn(band)
	if err != nil {
		c.Found, c.Why, c.Fix = "unknown", err.Error(), "Mount /proc."
		return c
	}
	c.Found = fmt.Sprintf("%d of %d free (%s to %s)", free, band.Len(), band.First, band.Last)
	if c.OK = free > 0; !c.OK {
		full := &display.ExhaustedError{Band: band, InUse: band.Len()}
		c.Why, c.Fix = full.Sentence(), "Widen `displays` in the plugin's config."
	}
	return c
}

func checkMemory(r memory.Reading) requirements.Check {
	c := requirements.Check{Name: "memory", OK: true, Found: r.String()}
	for _, unknown := range r.Unknown {
		c.Found += "; left out: " + unknown
	}
	warning, err := memory.CheckFloor(memory.DefaultFloorMB, r, 0)
	switch low := err.(type) {
	case nil:
		c.Why = warning
		return c
	case *memory.FloorError:
		c.Why = low.Sentence()
	default:
		c.Why = err.Error()
	}
	c.OK = false
	c.Fix = "Free memory, raise the limit, or lower `min_free_memory_mb` in the job."
	return c
}

func checkCgroups(host cgroup.Host) requirements.Check {
	c := requirements.Check{Name: "cgroups"}
	limits := cgroup.Limits{MemoryBytes: 1 << 30, PidsMax: cgroup.DefaultPidsMax, CPUShares: 1024}
	tree, err := cgroup.Open(host, "")
	var group *cgroup.Group
	if err == nil {
		group, err = tree.Create(fmt.Sprintf("doctor-%d", os.Getpid()), limits)
	}
	if err != nil {
		c.Found, c.Why = "cannot be used: "+err.Error(), "Screens run without limits on memory and processes."
		c.Fix = "Run the plugin as root on a machine with a writable /sys/fs/cgroup."
		return c
	}
	defer func() { _ = group.Remove() }()
	c.Found = "v1"
	if tree.V2() {
		c.Found = "v2"
	}
	if weaker := group.Weaker(); len(weaker) > 0 {
		c.Why = plain(fmt.Sprint(weaker))
		c.Fix = "Give the plugin's group the cpu, memory and pids controllers (cgroup.subtree_control)."
		return c
	}
	c.OK = true
	return c
}
