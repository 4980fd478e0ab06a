// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// A run of all tests breaks the same few things each time, so that its failure is one of
// what was changed; `make chaos` goes further, and elsewhere each time.
const (
	fewFaults = 10
	fewSeed   = 1512080459848262627
)

// TestChaos breaks things at random and checks after each that nothing is lost, doubled or
// left behind. CHAOS is how many faults, CHAOS_SEED replays a run, and CHAOS_FAULTS and
// CHAOS_VICTIMS are regular expressions for the names of faults and of screens (red, green, blue,
// crate in docker, bottle in apptainer), where only some are asked for.
func TestChaos(t *testing.T) {
	needDesktop(t)
	count, otherwise := int(number(t, "CHAOS", fewFaults)), rand.Uint64()>>1
	if os.Getenv("CHAOS") == "" {
		otherwise = fewSeed
	}
	seed := number(t, "CHAOS_SEED", otherwise)
	t.Logf("replay with CHAOS=%d CHAOS_SEED=%d", count, seed)
	sandboxes := boxes(t)
	var options []string
	for _, b := range sandboxes {
		options = append(options, b.config)
	}
	c := &chaos{t: t, a: newEmbeddedIn(t, smallState, options...), rng: rand.New(rand.NewPCG(seed, 0)), survived: map[string]int{}}
	t.Cleanup(c.explain)
	for _, b := range append([]box{{victim: "red"}, {victim: "green"}, {victim: "blue"}}, sandboxes...) {
		if asked(t, "CHAOS_VICTIMS")(b.victim) {
			c.join(b)
		}
	}
	files := c.pluginFiles()
	wanted := asked(t, "CHAOS_FAULTS")
	faults := slices.DeleteFunc(slices.Concat(faults, twoFaults, stateFaults, sandboxFaults), func(f fault) bool { return !wanted(f.name) })
	for i := range count {
		f, v := c.choose(faults)
		c.now = fmt.Sprintf("fault %d of %d, %s of %s", i+1, count, f.name, v.name)
		began := time.Now()
		c.strike(v, f)
		c.survived[f.name]++
		t.Logf("%s: survived, after %.1f s", c.now, time.Since(began).Seconds())
	}
	c.now = "the end"
	c.leavesNothing(files)
	c.report(count)
}

// asked is whether a name matches the regular expression in the environment; unset it matches all.
func asked(t *testing.T, variable string) func(name string) bool {
	form, err := regexp.Compile(os.Getenv(variable))
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return form.MatchString
}

// join makes a screen one of the victims.
func (c *chaos) join(b box) {
	c.now = "the start of " + b.victim
	name := fmt.Sprintf("%s-%d", b.victim, os.Getpid()) // another run on this node has its own, in cgroups too
	v := &victim{name: name, hash: screen.ID{Namespace: "default", Profile: screen.Profile(name)}.Hash(), box: b}
	v.job = c.job(v)
	c.victims = append(c.victims, v)
	c.a.must(c.t, "run", v.job)
	c.settle(v, []string{"agent"})
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// victim is one screen and what must be true of it.
type victim struct {
	name, hash, job string
	box             box // without a kind it is the host
	holder          string
	epoch           uint64
}

// chaos is one run.
type chaos struct {
	t        *testing.T
	a        *agent
	rng      *rand.Rand
	victims  []*victim
	survived map[string]int
	checks   int
	now      string
	struck   []hit
}

// choose finds a fault, and a victim that it can happen to now.
func (c *chaos) choose(faults []fault) (fault, *victim) {
	for range 1000 {
		f := faults[c.rng.IntN(len(faults))]
		victims := slices.DeleteFunc(slices.Clone(c.victims), func(v *victim) bool { return f.possible != nil && !f.possible(c, v) })
		if len(victims) > 0 {
			return f, victims[c.rng.IntN(len(victims))]
		}
	}
	c.fatal("none of the faults is possible")
	return fault{}, nil
}

// strike breaks one thing and checks everything.
func (c *chaos) strike(v *victim, f fault) {
	before, began := xservers(c.a), time.Now()
	holders := f.do(c, v)
	if holders == nil {
		holders = []string{v.holder}
	}
	if f.ends {
		// Until then everything looks as whole as before.
		c.a.eventually("the end of the old X server of "+v.name+" ("+c.now+")", func() bool { return xservers(c.a)[v.hash] != before[v.hash] })
	}
	if f.ends && !f.asked {
		c.told(v, began)
	}
	for _, other := range c.victims {
		if other == v {
			c.settle(other, holders)
		} else {
			c.settle(other, []string{other.holder})
		}
		if after := xservers(c.a); (other != v || !f.ends) && after[other.hash] != before[other.hash] {
			c.fatal("the X server %s of %s became %s", before[other.hash], other.name, after[other.hash])
		}
	}
	c.alone()
	c.normalize(v)
}

// wholeLimit is what a start has on a node that is busy with anything else: ten seconds to end
// what an earlier run left, the start_timeout of the job, ten around it, and as many for us.
const wholeLimit = 90 * time.Second

// settle waits until a screen is whole, and checks who holds it.
func (c *chaos) settle(v *victim, holders []string) {
	c.t.Helper()
	c.a.within(wholeLimit, v.name+" is whole ("+c.now+")", func() bool {
		r := c.a.botscreen(c.t, "status", v.name, "--json")
		var s screenStatus
		if r.code != 0 || json.Unmarshal([]byte(r.stdout), &s) != nil || s.Supervisor == nil {
			return false
		}
		if !c.runs(v) {
			return false // a start whose driver died is begun again, although its screen may be up
		}
		switch s.Supervisor.State {
		case "asleep", "frozen":
			return c.a.botscreen(c.t, "wake", v.name).code == 0 && screens(c.a)[v.hash].xserver.pid != 0
		case "ready":
			found := screens(c.a)[v.hash]
			return found.session.pid != 0 && found.xserver.pid != 0
		}
		return false
	})
	var l held
	c.a.eventually("a lease of "+v.name+" ("+c.now+")", func() bool {
		r := c.a.botscreen(c.t, "lease", v.name, "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &l) == nil
	})
	if l.Epoch < v.epoch || !slices.Contains(holders, l.Holder) {
		c.fatal("%s is held by the %s with epoch %d; it had %d, and may be held by %v", v.name, l.Holder, l.Epoch, v.epoch, holders)
	}
	if l.Holder != v.holder && v.holder != "" && l.Epoch == v.epoch {
		c.fatal("%s changed hands under one epoch, %d", v.name, l.Epoch)
	}
	v.holder, v.epoch = l.Holder, l.Epoch
	c.checks++
	if c.rng.IntN(2) == 0 {
		c.fenced(v)
	}
}

// runs says whether the agent knows that the screen's task runs.
func (c *chaos) runs(v *victim) bool {
	allocs, _, err := c.a.client().Jobs().Allocations(v.name, false, nil)
	if err != nil {
		return false
	}
	for _, stub := range allocs {
		if state := stub.TaskStates[v.name]; state != nil && state.State == "running" && stub.DesiredStatus == "run" {
			return true
		}
	}
	return false
}

// fenced checks that the agent sees the screen exactly when it holds.
func (c *chaos) fenced(v *victim) {
	picture := filepath.Join(c.t.TempDir(), "p.png")
	var r result
	c.a.eventually("an answer about a picture of "+v.name, func() bool {
		r = c.a.botscreen(c.t, "screenshot", "-o", picture, v.name)
		return r.code == 0 || strings.Contains(r.stderr, "controls this screen") || strings.Contains(r.stderr, "A person has controlled") || strings.Contains(r.stderr, "left without handing")
	})
	if (r.code == 0) != (v.holder == "agent") {
		c.fatal("the %s holds %s, and a screenshot says %s", v.holder, v.name, r)
	}
	_ = os.Remove(picture)
	c.checks++
}

// normalize gives the screen back to the agent now and then, so that each fault meets both
// holders.
func (c *chaos) normalize(v *victim) {
	if v.holder == "human" && c.rng.IntN(2) == 0 {
		c.a.eventually("the screen can be freed", func() bool { return c.a.botscreen(c.t, "release", "--force", v.name).code == 0 })
		c.settle(v, []string{"agent"})
	}
}

// during runs a command and breaks something while it runs. Whether it has happened nobody
// knows then, so both are right.
func (c *chaos) during(v *victim, breaks func(), args ...string) []string {
	done := make(chan result, 1)
	go func() { done <- c.a.botscreen(c.t, args...) }()
	c.pause(100 * time.Millisecond)
	breaks()
	r := <-done
	wanted := map[string]string{"take": "human", "release": "agent", "wake": v.holder}[args[0]]
	if r.code == 0 {
		return []string{wanted}
	}
	return []string{wanted, v.holder}
}

// pause lets something go on for a random while: the moment of a fault is what varies.
func (c *chaos) pause(most time.Duration) {
	time.Sleep(time.Duration(c.rng.Int64N(int64(most))))
}

func (c *chaos) kill(all ...process) {
	for _, p := range all {
		if p.pid > 0 {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// supervisorOf finds the supervisor of a screen by its uid, which owns the control directory.
func (c *chaos) supervisorOf(v *victim) process {
	info, err := os.Stat(filepath.Join(c.a.dir, "state", "control", "default", v.name))
	if err != nil {
		c.fatal("%v", err)
	}
	for _, p := range supervisors(c.a) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		if err == nil && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", info.Sys().(*syscall.Stat_t).Uid)) {
			return p
		}
	}
	return process{}
}

// part finds a program of the screen's desktop.
func (c *chaos) part(v *victim, program string) []process {
	session := screens(c.a)[v.hash].session.pid
	var found []process
	for _, p := range processes() {
		if p.parent == session && session != 0 && filepath.Base(p.words[0]) == program {
			found = append(found, p)
		}
	}
	return found
}

// cleanTmp removes a live X server's lock and socket, as a cleaner of /tmp does (D2).
func (c *chaos) cleanTmp(v *victim) {
	words := screens(c.a)[v.hash].xserver.words
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ":") })
	if i < 0 {
		return
	}
	number := words[i][1:]
	_ = os.Remove("/tmp/.X" + number + "-lock")
	_ = os.Remove("/tmp/.X11-unix/X" + number)
}

// job is a screen that is started again however often it ends.
func (c *chaos) job(v *victim) string {
	path := filepath.Join(c.t.TempDir(), v.name+".nomad.hcl")
	writeFile(c.t, path, fmt.Sprintf(`
job %[1]q {
  group "desk" {
    restart {
      attempts = 100000
      interval = "24h"
      delay    = "250ms"
      mode     = "delay"
    }
    task %[1]q {
      driver = "botscreen"
      config {
        profile            = %[1]q
        isolation          = %[3]q
        image              = %[4]q
        geometry           = "640x480"
        min_free_memory_mb = 64
        start_timeout      = "60s"
        idle_action        = %[2]q
      }
      resources {
        cpu    = 100
        memory = 512
      }
    }
  }
}
`, v.name, map[bool]string{true: "freeze", false: "sleep"}[v.freezes()], cmp.Or(v.box.kind, "host"), v.box.image))
	return path
}
