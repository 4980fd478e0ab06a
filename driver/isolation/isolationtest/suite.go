// SPDX-License-Identifier: MPL-2.0

// Package isolationtest is the one suite that every boundary passes: real sessions with
// real desktops, run by real supervisors, from the driver's own binary.
package isolationtest

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
)

// limit bounds every wait of the suite; none takes nearly as long.
const limit = 60 * time.Second

// Suite is a boundary as the suite sees it.
type Suite struct {
	// New is the boundary as a freshly started driver has it. Every call stands for
	// another driver process.
	New func(t *testing.T) isolation.Boundary
	// Image is what its sandboxes run.
	Image string
	// BrowserImage has a browser as well; empty is Image.
	BrowserImage string
	// Left names what there still is outside of processes: containers, groups, mounts.
	Left func(t *testing.T, order isolation.Order) []string
	// Inside are shell scripts and what they print inside a running screen, besides what
	// holds everywhere.
	Inside map[string]string
	// ReadHome reads a file below the home where that is not on this node; nil where it is.
	ReadHome func(t *testing.T, order isolation.Order, path string) ([]byte, error)
	// Destroy takes a sandbox away as somebody outside would.
	Destroy func(t *testing.T, record isolation.Record)
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	if testing.Short() {
		t.Skip("starts real desktops")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: every screen gets a uid of its own")
	}
	binary := Driver(t)
	type check struct {
		name string
		run  func(*testing.T, Suite, string)
	}
	checks := []check{
		{"a desktop's life", testLife},
		{"stop with children that ignore TERM", testStubborn},
		{"W1 X23 one browser, confined", testBrowser},
		{"gone sandbox", testGone},
		{"a launch that died half-way", testIntent},
	}
	if s.ReadHome == nil { // else no site of this node reaches into its network
		checks = append(checks, check{"a browser that ends badly, and its files", testBrowsing})
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, s, binary) })
	}
}

// withBrowser is the suite on an image with a browser.
func (s Suite) withBrowser() Suite {
	s.Image = cmp.Or(s.BrowserImage, s.Image)
	return s
}

// RunWithoutDesktop runs an image that lacks what a screen needs: the start fails with
// the words given, and nothing is left (P10).
func RunWithoutDesktop(t *testing.T, s Suite, words ...string) {
	r := newRig(t, s, Driver(t))
	r.launch()
	r.supervise(r.plan())
	reason := r.awaitFailure()
	for _, word := range words {
		if !strings.Contains(reason, word) {
			t.Errorf("%q does not name %s", reason, word)
		}
	}
	r.expectEnd()
}

// testLife is everything that one running desktop can show.
func testLife(t *testing.T, s Suite, binary string) {
	r := newRig(t, s, binary)
	r.launch()
	r.supervise(r.plan())
	r.awaitReady()
	for _, c := range []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"identity", testIdentity},
		{"inside", testInside},
		{"usage", testUsage},
		{"exec", testExec},
		{"DOC-03 end of input", testEndOfInput},
		{"64 MiB both ways", testBulk},
		{"terminal and resize", testTerminal},
		{"signal", testSignal},
		{"a caller that left", testCallerLeft},
		{"the supervisor died", testSupervisorDied},
		{"the driver restarted", testDriverRestarted},
		{"an adopted screen still answers", testExec},
		{"stop", testStop},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.run(t, r) }) {
			r.describe()
			return // what follows would only repeat it
		}
	}
}

// expectEnd waits for the sandbox to end by itself, removes it and checks that nothing
// of the run is left.
func (r *rig) expectEnd() {
	r.t.Helper()
	select {
	case <-r.sandbox.Done():
	case <-time.After(limit):
		r.t.Fatal("the sandbox does not end")
	}
	r.remove()
}

func (r *rig) remove() {
	r.t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	must(r.t, r.sandbox.Kill(ctx))
	must(r.t, r.sandbox.Remove(ctx))
	must(r.t, r.sandbox.Remove(ctx)) // again: a driver may die in between
	r.sandbox = nil
	r.expectNothingLeft()
}

func (r *rig) expectNothingLeft() {
	r.t.Helper()
	if left := processesOf(r.order.Account.UID); len(left) > 0 {
		r.t.Errorf("processes are left: %v", left)
	}
	if left := r.suite.Left(r.t, r.order); len(left) > 0 {
		r.t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(r.order.Scratch); err == nil {
		r.t.Errorf("%s is left", r.order.Scratch)
	}
}
