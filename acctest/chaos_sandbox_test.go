// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// box is a sandbox that joins the victims.
type box struct {
	kind, victim, image string
	config              string // of the plugin
	engine              *engine
}

// boxes are the sandboxes that this machine has. They join where more than the few faults of
// all tests are asked for: an engine that may die has to be made first.
func boxes(t *testing.T) (found []box) {
	t.Helper()
	if os.Getenv("CHAOS") == "" {
		t.Log("host screens only: CHAOS=10 asks for sandboxes too")
		return nil
	}
	image := cmp.Or(os.Getenv("BOTSCREEN_TEST_IMAGE"), "botscreen-desktop:test")
	if e, why := newEngine(t, image); why == "" {
		found = append(found, box{kind: "docker", victim: "crate", image: image, engine: e, config: fmt.Sprintf("docker {\n  endpoint = %q\n}", e.endpoint)})
	} else {
		t.Log("without docker: " + why)
	}
	path, err := exec.LookPath("apptainer")
	root := os.Getenv("BOTSCREEN_TEST_ROOT")
	if err != nil || root == "" {
		t.Log("without apptainer: it takes apptainer on PATH, and a directory with a desktop as scripts/with-engine.sh makes it")
		return found
	}
	return append(found, box{kind: "apptainer", victim: "bottle", image: filepath.Base(root),
		config: fmt.Sprintf("apptainer {\n  path = %q\n  image_dirs = [%q]\n}", path, filepath.Dir(root))})
}

// sandboxFaults are what happens to a sandbox and to its engine from outside.
var sandboxFaults = []fault{
	{name: "container killed", ends: true, possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.docker(v, "kill", "--signal", "KILL", c.container(v))
		return nil
	}},
	{name: "container removed", ends: true, possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.docker(v, "rm", "--force", c.container(v))
		return nil
	}},
	{name: "container paused and unpaused", possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.whilePaused(v, func() { c.pause(2 * time.Second) })
		return nil
	}},
	{name: "supervisor killed while the container is paused", possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.whilePaused(v, func() { c.kill(c.supervisorOf(v)); c.pause(2 * time.Second) })
		return nil
	}},
	{name: "plugin killed while the container is paused", possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.whilePaused(v, func() { c.kill(plugins(c.a)...); c.pause(2 * time.Second) })
		return nil
	}},
	{name: "session killed while the container is paused", ends: true, possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		c.whilePaused(v, func() { c.kill(screens(c.a)[v.hash].session) })
		return nil
	}},
	{name: "engine killed, its containers live on", possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		v.box.engine.end(syscall.SIGKILL)
		c.pause(2 * time.Second)
		v.box.engine.start(true)
		return nil
	}},
	{name: "engine killed, and its containers at its start", ends: true, possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		v.box.engine.end(syscall.SIGKILL)
		v.box.engine.start(false)
		return nil
	}},
	{name: "engine and plugin killed", possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		v.box.engine.end(syscall.SIGKILL)
		c.kill(plugins(c.a)...)
		c.pause(2 * time.Second)
		v.box.engine.start(true)
		return nil
	}},
	{name: "container killed while the engine is away", ends: true, possible: boxed("docker"), do: func(c *chaos, v *victim) []string {
		v.box.engine.end(syscall.SIGKILL)
		c.kill(screens(c.a)[v.hash].session)
		c.pause(2 * time.Second)
		v.box.engine.start(true)
		return nil
	}},
	{name: "engine killed during a start", ends: true, asked: true, possible: both(boxed("docker"), agentHolds), do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "stop", v.name)
		c.a.must(c.t, "run", "--detach", v.job)
		c.pause(1500 * time.Millisecond)
		v.box.engine.end(syscall.SIGKILL)
		v.box.engine.start(true)
		return nil
	}},
	{name: "apptainer killed", ends: true, possible: boxed("apptainer"), do: func(c *chaos, v *victim) []string {
		session := screens(c.a)[v.hash].session
		for _, p := range processes() {
			if p.pid == session.parent {
				c.kill(p)
			}
		}
		return nil
	}},
}

// boxed is whether a victim is in a sandbox of the kind.
func boxed(kind string) func(c *chaos, v *victim) bool {
	return func(_ *chaos, v *victim) bool { return v.box.kind == kind }
}

// onHost is whether a victim is in none.
func onHost(_ *chaos, v *victim) bool { return v.box.kind == "" }

func both(one, other func(c *chaos, v *victim) bool) func(c *chaos, v *victim) bool {
	return func(c *chaos, v *victim) bool { return one(c, v) && other(c, v) }
}

// whilePaused halts a container while something goes on. The screen answers all the same,
// in words (P11).
func (c *chaos) whilePaused(v *victim, f func()) {
	name := c.container(v)
	c.docker(v, "pause", name)
	// A session that was killed meanwhile has taken it along.
	defer func() { _, _ = docker(v.box.engine.endpoint, "unpause", name) }()
	f()
	began := time.Now()
	_ = c.a.botscreen(c.t, "screenshot", "-o", filepath.Join(c.t.TempDir(), "p.png"), v.name)
	if took := time.Since(began); took > time.Minute {
		c.fatal("%s did not answer for %s while its container was paused", v.name, took)
	}
}

// container is the one of a victim.
func (c *chaos) container(v *victim) string {
	c.t.Helper()
	found := c.containers(v)
	if len(found) != 1 {
		c.fatal("%s has containers %v", v.name, found)
	}
	return found[0]
}

// containers are those of a victim, running or not; none where it has no engine.
func (c *chaos) containers(v *victim) []string {
	if v.box.engine == nil {
		return nil
	}
	return strings.Fields(c.docker(v, "ps", "--all", "--quiet", "--filter", "label=botscreen.owner="+filepath.Join(c.a.dir, "state"), "--filter", "label=botscreen.profile="+v.name))
}

func (c *chaos) docker(v *victim, args ...string) string {
	c.t.Helper()
	out, err := docker(v.box.engine.endpoint, args...)
	if err != nil {
		c.fatal("docker %v: %v: %s", args, err, out)
	}
	return out
}
