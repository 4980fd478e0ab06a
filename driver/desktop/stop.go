// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// Time limits of a stop beside the grace that the caller gives.
const (
	partGrace = 1 * time.Second // for the Xfce components after TERM
	coreGrace = 1 * time.Second // for Xvnc, bus and xfconfd after TERM
	killLimit = 5 * time.Second // for everybody after KILL
)

// Stop ends the desktop and everything else below this process: TERM, after
// grace KILL, and it returns when nobody is left, the files are removed and the
// zombies reaped (rule S9). Programs that left their process group or session
// are found, because this process is their sub-reaper.
//
// Xvnc, the bus and xfconfd are told last, so that the others can save what
// they have. A *SurvivorsError names who outlived KILL. When ctx ends first the
// stop goes on and Done tells its end.
func (d *Desktop) Stop(ctx context.Context, grace time.Duration) error {
	go d.stop(nil, grace)
	select {
	case <-d.done:
		var survivors *SurvivorsError
		if errors.As(d.err, &survivors) {
			return survivors
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop desktop: %w", context.Cause(ctx))
	}
}

// stop ends the desktop once, for the first reason given.
func (d *Desktop) stop(reason error, grace time.Duration) {
	d.stopOnce.Do(func() { d.finish(reason, grace) })
	<-d.done
}

// finish ends all programs, removes the files and closes done.
func (d *Desktop) finish(reason error, grace time.Duration) {
	d.mu.Lock()
	close(d.stopping)
	d.mu.Unlock()
	survivors := d.endAll(grace)
	if d.view != nil {
		d.view.close()
	}
	if d.clip != nil {
		d.clip.close()
	}
	var failed []error
	if d.door != nil {
		failed = append(failed, d.door.close())
	}
	if d.x != nil && d.x.gate != nil {
		failed = append(failed, d.x.gate.close())
	}
	if d.tmp != nil {
		failed = append(failed, d.tmp.remove())
	}
	failed = append(failed, d.place.release())
	d.logs.close()
	d.launcher.reaper.leave()
	d.err = joinOne(append([]error{reason, survivors}, failed...))
	close(d.done)
}

// joinOne is errors.Join that leaves a single error as it is.
func joinOne(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// endAll ends every process below this one and returns a *SurvivorsError if
// that was not possible.
func (d *Desktop) endAll(grace time.Duration) error {
	core := d.coreChildren()
	notCore := func(pid int) bool {
		return !slices.ContainsFunc(core, func(c *child) bool { return c.pid == pid })
	}
	if grace > 0 {
		impatient := time.AfterFunc(partGrace, d.killParts)
		signalAll(unix.SIGTERM, grace, notCore)
		impatient.Stop()
		signalAll(unix.SIGKILL, killLimit, notCore)
		// xfconfd first: it writes settings when it ends, but not when it loses the bus.
		xfconf := slices.IndexFunc(core, func(c *child) bool { return c.name == nameXfconf })
		if xfconf >= 0 {
			signalCore(core[xfconf:xfconf+1], unix.SIGTERM, min(grace, coreGrace))
		}
		signalCore(core, unix.SIGTERM, min(grace, coreGrace))
	}
	// The core by its handles: with /proc mounted hidepid a process that is not
	// dumpable is invisible even to us.
	signalCore(core, unix.SIGKILL, killLimit)
	return killTheRest()
}

// killParts ends the Xfce components that did not mind TERM: one that has just
// been started loses it (it asks a main loop to quit that does not run yet).
// What they have to save lies with xfconfd. Others keep their full grace.
func (d *Desktop) killParts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.parts {
		_ = c.process.Kill() // it may have ended already
	}
}

// killTheRest kills until nobody is left below this process: who dies hands its
// children to us, and somebody may fork meanwhile.
func killTheRest() error {
	limit := time.Now().Add(killLimit)
	for {
		left := signalAll(unix.SIGKILL, time.Until(limit), nil)
		if len(left) == 0 && len(living(nil)) == 0 {
			return nil
		}
		if !time.Now().Before(limit) {
			return survivorsError(living(nil))
		}
	}
}

// signalCore signals Xvnc, bus and xfconfd and waits for their end up to limit.
func signalCore(core []*child, sig unix.Signal, limit time.Duration) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for _, c := range core {
		_ = c.process.Signal(sig) // it may have ended already
	}
	for _, c := range core {
		select {
		case <-c.exited:
		case <-deadline.C:
			return
		}
	}
}

// signalAll signals every living process below this one that is chosen and
// waits until they have ended or the limit has passed. It returns who lives.
func signalAll(sig unix.Signal, limit time.Duration, chosen func(pid int) bool) []process.Identity {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	var held []*process.Handle
	defer func() {
		for _, h := range held {
			_ = h.Close()
		}
	}()
	for _, id := range living(chosen) {
		h, err := process.Open(id)
		if err != nil {
			continue // ended meanwhile
		}
		held = append(held, h)
		_ = h.Signal(sig) // whoever cannot be signalled is counted as a survivor
	}
	for i, h := range held {
		select {
		case <-h.Done():
		case <-deadline.C:
			return alive(held[i:])
		}
	}
	return nil
}

func alive(handles []*process.Handle) []process.Identity {
	var ids []process.Identity
	for _, h := range handles {
		if h.Alive() {
			ids = append(ids, h.Identity)
		}
	}
	return ids
}

// living are the processes below this one that run and are chosen; nil chooses
// all. Zombies do not run.
func living(chosen func(pid int) bool) []process.Identity {
	below, err := process.Descendants(os.Getpid())
	if err != nil {
		return nil
	}
	var ids []process.Identity
	for _, pid := range below {
		if chosen != nil && !chosen(pid) {
			continue
		}
		if id, err := process.Observe(pid); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func survivorsError(left []process.Identity) error {
	var e SurvivorsError
	for _, id := range left {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", id.PID))
		e.Processes = append(e.Processes, fmt.Sprintf("%d (%s)", id.PID, cleanLine(strings.TrimSpace(string(name)))))
	}
	return &e
}
