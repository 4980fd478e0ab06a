// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// hit is a component that was killed: one that dies five times in five minutes is given
// up, as it should be, so it is not killed more often.
type hit struct {
	what string
	at   time.Time
}

// fault is one way to break something.
type fault struct {
	name string
	// ends says that the victim's desktop does not survive it.
	ends bool
	// asked says that the end was asked for, and has no reason to be told.
	asked bool
	// do returns who may hold the screen afterwards; nil: who held before.
	do func(c *chaos, v *victim) []string
	// possible is nil where it always is.
	possible func(c *chaos, v *victim) bool
}

var faults = []fault{
	{name: "plugin killed", do: func(c *chaos, _ *victim) []string { c.kill(plugins(c.a)...); return nil }},
	{name: "supervisor killed", do: func(c *chaos, v *victim) []string { c.kill(c.supervisorOf(v)); return nil }},
	{name: "session killed", ends: true, do: func(c *chaos, v *victim) []string { c.kill(screens(c.a)[v.hash].session); return nil }},
	{name: "X server killed", ends: true, do: func(c *chaos, v *victim) []string { c.kill(screens(c.a)[v.hash].xserver); return nil }},
	{name: "bus killed", ends: true, do: func(c *chaos, v *victim) []string { c.kill(c.part(v, "dbus-daemon")...); return nil }},
	component("xfwm4"), component("xfce4-panel"), component("xfdesktop"), component("xfsettingsd"),
	{name: "agent killed", do: func(c *chaos, _ *victim) []string { c.killAgent(); return nil }},
	{name: "/tmp cleaned", possible: onHost, do: func(c *chaos, v *victim) []string { c.cleanTmp(v); return nil }},
	{name: "supervisor killed during a takeover", do: func(c *chaos, v *victim) []string {
		return c.during(v, func() { c.kill(c.supervisorOf(v)) }, "take", v.name)
	}},
	{name: "plugin killed during a hand-back", do: func(c *chaos, v *victim) []string {
		return c.during(v, func() { c.kill(plugins(c.a)...) }, "release", v.name)
	}},
	{name: "plugin killed during a start", ends: true, asked: true, possible: agentHolds, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "stop", v.name)
		c.a.must(c.t, "run", "--detach", v.job)
		c.pause(800 * time.Millisecond)
		c.kill(plugins(c.a)...)
		return nil
	}},
	{name: "agent killed during a start", ends: true, asked: true, possible: agentHolds, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "stop", v.name)
		c.a.must(c.t, "run", "--detach", v.job)
		c.pause(800 * time.Millisecond)
		c.killAgent()
		return nil
	}},
	{name: "supervisor killed while the desktop sleeps", ends: true, asked: true, possible: canSleep, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		c.kill(c.supervisorOf(v))
		return nil
	}},
	{name: "supervisor killed while the desktop wakes", ends: true, asked: true, possible: canSleep, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		return c.during(v, func() { c.pause(500 * time.Millisecond); c.kill(c.supervisorOf(v)) }, "wake", v.name)
	}},
	{name: "lease destroyed", do: func(c *chaos, v *victim) []string {
		path := filepath.Join(c.a.dir, "state", "control", "default", v.name, "lease.json")
		c.kill(c.supervisorOf(v))
		if err := os.WriteFile(path, []byte("\x00garbage"), 0o600); err != nil {
			c.fatal("%v", err)
		}
		// In doubt a person holds (L2), but the next supervisor may have been faster.
		return []string{"human", v.holder}
	}},
}

// twoFaults are deaths that nobody has time to see one by one.
var twoFaults = []fault{
	{name: "plugin and supervisor killed", do: together(pluginDies, supervisorDies)},
	{name: "plugin and session killed", ends: true, do: together(pluginDies, sessionDies)},
	{name: "plugin and X server killed", ends: true, do: together(pluginDies, xserverDies)},
	{name: "supervisor and session killed", ends: true, do: together(supervisorDies, sessionDies)},
	{name: "supervisor and X server killed", ends: true, do: together(supervisorDies, xserverDies)},
	{name: "agent and plugin killed", do: agentToo(pluginDies)},
	{name: "agent and supervisor killed", do: agentToo(supervisorDies)},
	{name: "agent and session killed", ends: true, do: agentToo(sessionDies)},
	{name: "agent, plugin and supervisor killed", do: agentToo(pluginDies, supervisorDies)},
	{name: "agent, plugin and session killed", ends: true, do: agentToo(pluginDies, sessionDies)},
}

// death names who dies.
type death func(c *chaos, v *victim) []process

func pluginDies(c *chaos, _ *victim) []process     { return plugins(c.a) }
func supervisorDies(c *chaos, v *victim) []process { return []process{c.supervisorOf(v)} }
func sessionDies(c *chaos, v *victim) []process    { return []process{screens(c.a)[v.hash].session} }
func xserverDies(c *chaos, v *victim) []process    { return []process{screens(c.a)[v.hash].xserver} }

// together kills all at once: they are looked for before.
func together(deaths ...death) func(c *chaos, v *victim) []string {
	return func(c *chaos, v *victim) []string {
		var doomed []process
		for _, d := range deaths {
			doomed = append(doomed, d(c, v)...)
		}
		c.kill(doomed...)
		return nil
	}
}

// agentToo kills the agent a random moment after the others, and starts it again.
func agentToo(deaths ...death) func(c *chaos, v *victim) []string {
	return func(c *chaos, v *victim) []string {
		together(deaths...)(c, v)
		c.pause(100 * time.Millisecond)
		c.killAgent()
		return nil
	}
}

// killAgent kills the agent and starts the next one.
func (c *chaos) killAgent() {
	c.a.end(syscall.SIGKILL)
	c.a.start()
	c.a.awaitNode()
}

func agentHolds(_ *chaos, v *victim) bool { return v.holder == "agent" }

// component kills one of the Xfce programs, which come back.
func component(program string) fault {
	return fault{
		name: program + " killed",
		possible: func(c *chaos, v *victim) bool {
			recent := 0
			for _, h := range c.struck {
				if h.what == v.name+" "+program && time.Since(h.at) < 5*time.Minute {
					recent++
				}
			}
			return recent < 4 && len(c.part(v, program)) > 0
		},
		do: func(c *chaos, v *victim) []string {
			c.struck = append(c.struck, hit{v.name + " " + program, time.Now()})
			c.kill(c.part(v, program)...)
			return nil
		},
	}
}
