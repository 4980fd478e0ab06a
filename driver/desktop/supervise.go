// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"os"
	"time"
)

// A component that dies is started again at most this often in this time: a
// window manager may crash once a day, but not in a loop.
const (
	maxRestarts   = 5
	restartWindow = 5 * time.Minute
)

// supervise runs from the moment the desktop is ready until it is done.
func (d *Desktop) supervise() {
	if d.plan.Command != nil {
		go d.runCommand(*d.plan.Command)
	}
	go d.testFence()
	for _, c := range d.components {
		go d.keep(c)
	}
	for _, c := range d.coreChildren() {
		if c.name == nameXfconf {
			continue
		}
		go func() {
			<-c.exited
			d.endWith(c)
		}()
	}
}

// endWith ends the desktop because c, which it cannot do without, has ended.
func (d *Desktop) endWith(c *child) {
	select {
	case <-d.stopping:
		return // asked for
	default:
	}
	d.stop(c.died(d.logs), 0)
}

// component is a program that is kept running, and how it runs now.
type component struct {
	program Program
	child   *child
}

// keep starts a component again whenever it ends, within bounds, until the
// desktop stops.
func (d *Desktop) keep(c component) {
	restarts := restartBudget{limit: maxRestarts, window: restartWindow}
	name := c.program.Name
	for {
		<-c.child.exited
		if d.isStopping() || exitCode(c.child.state) == 0 && name == nameSettings {
			return // xfsettingsd may have gone to the background
		}
		reason := describeStatus(c.child.state)
		if !restarts.take(c.child.ended) {
			d.emit(Event{Kind: EventGaveUp, Program: name, Detail: reason})
			return
		}
		again, err := d.launchPart(c.program)
		if err != nil {
			d.emit(Event{Kind: EventGaveUp, Program: name, Detail: err.Error()})
			return
		}
		c.child = again
		d.emit(Event{Kind: EventRestarted, Program: name, PID: again.pid, Detail: reason})
	}
}

func (d *Desktop) isStopping() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}

// launchPart starts a component and remembers it for the stop.
func (d *Desktop) launchPart(p Program) (*child, error) {
	c, err := d.launch(p)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts = append(d.parts, c)
	return c, nil
}

// launch starts p unless the desktop is stopping. The lock is the one under
// which stopping begins, so nothing is started behind its back.
func (d *Desktop) launch(p Program, files ...*os.File) (*child, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isStopping() {
		return nil, fmt.Errorf("start %s: the desktop is stopping", p.Name)
	}
	return d.launcher.start(p, files...)
}

// runCommand runs the program that the job wants on its desktop.
func (d *Desktop) runCommand(p Program) {
	c, err := d.launch(p)
	if err != nil {
		d.emit(Event{Kind: EventExited, Program: p.Name, Detail: err.Error(), Status: -1})
		return
	}
	d.mu.Lock()
	d.command = c
	d.mu.Unlock()
	<-c.exited
	d.emit(Event{Kind: EventExited, Program: p.Name, PID: c.pid, Detail: describeStatus(c.state), Status: exitCode(c.state)})
}

// restartBudget admits limit restarts within any window.
type restartBudget struct {
	limit  int
	window time.Duration
	taken  []time.Time
}

func (b *restartBudget) take(now time.Time) bool {
	for len(b.taken) > 0 && now.Sub(b.taken[0]) > b.window {
		b.taken = b.taken[1:]
	}
	if len(b.taken) >= b.limit {
		return false
	}
	b.taken = append(b.taken, now)
	return true
}
