// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// freezes is whether the victim's desktop is frozen where others sleep.
func (v *victim) freezes() bool {
	return strings.HasPrefix(v.name, "blue-") || v.box.kind == "apptainer"
}

// stateFaults are about what lies on disk, and about desktops that stand still.
var stateFaults = []fault{
	{name: "disk full at a takeover, then the supervisor killed", do: func(c *chaos, v *victim) []string {
		empty := c.fillDisk()
		defer empty()
		r := c.a.botscreen(c.t, "take", v.name)
		c.kill(c.supervisorOf(v))
		c.a.eventually("a lease on a full disk ("+c.now+")", func() bool { return c.a.botscreen(c.t, "lease", v.name).code == 0 })
		if r.code == 0 {
			return []string{"human"} // leases have their room beforehand (X36)
		}
		return []string{"human", v.holder}
	}},
	{name: "run record damaged, then the plugin killed", do: func(c *chaos, v *victim) []string {
		c.damage(filepath.Join("runs", v.hash+".json"))
		c.kill(plugins(c.a)...)
		return nil
	}},
	{name: "screen record damaged, then the supervisor killed", do: func(c *chaos, v *victim) []string {
		c.damage(filepath.Join("control", "default", v.name, "screen.json"))
		c.kill(c.supervisorOf(v))
		return nil
	}},
	{name: "supervisor killed while the desktop is frozen", possible: canFreeze, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		c.kill(c.supervisorOf(v))
		return nil
	}},
	{name: "plugin killed while the desktop is frozen", possible: canFreeze, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		c.kill(plugins(c.a)...)
		return nil
	}},
	{name: "session killed while it is frozen", ends: true, possible: canFreeze, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		doomed := screens(c.a)[v.hash].session
		c.kill(doomed)
		// On cgroup v1 it dies when it is thawed.
		_ = c.a.botscreen(c.t, "wake", v.name)
		c.a.eventually("the end of the killed session ("+c.now+")", func() bool { return screens(c.a)[v.hash].session.pid != doomed.pid })
		return nil
	}},
	{name: "supervisor killed while the desktop thaws", possible: canFreeze, do: func(c *chaos, v *victim) []string {
		c.a.must(c.t, "sleep", v.name)
		return c.during(v, func() { c.kill(c.supervisorOf(v)) }, "wake", v.name)
	}},
}

func canFreeze(c *chaos, v *victim) bool { return v.freezes() && agentHolds(c, v) }

func canSleep(c *chaos, v *victim) bool { return !v.freezes() && agentHolds(c, v) }

// stateSize is the node's whole disk for state, as mount options have it.
const stateSize = "size=256m,mode=0711"

// smallState gives the driver a disk that can be filled.
func smallState(a *agent) {
	dir := filepath.Join(a.dir, "state")
	if err := os.Mkdir(dir, 0o711); err != nil {
		a.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, stateSize); err != nil {
		a.t.Skipf("a small disk for the state: %v", err)
	}
	a.after = append(a.after, func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			a.t.Error(err)
		}
	})
}

// fillDisk leaves not a byte of the state's disk, until it is emptied.
func (c *chaos) fillDisk() (empty func()) {
	path := filepath.Join(c.a.dir, "state", "filler")
	f, err := os.Create(path)
	if err != nil {
		c.fatal("%v", err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			c.fatal("%v", err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			c.fatal("%v", err)
		}
	}
}

// damage makes a file of the state unreadable, as a crash of the node can.
func (c *chaos) damage(name string) {
	if err := os.WriteFile(filepath.Join(c.a.dir, "state", name), []byte("{\"v\":1,\x00"), 0o600); err != nil {
		c.fatal("%v", err)
	}
}
