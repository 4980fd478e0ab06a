// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/display"
)

// Start brings a desktop up and returns when it is ready: Xvnc greets RFB
// clients, a window manager announced itself, panel and background are painted.
// ctx bounds the start only.
//
// On an error nothing is left: every process below this one has been ended and
// the files are removed. Errors to branch on are *DisplayTakenError (try the
// next number), *MissingError, *HeldError, *DiedError and *NotReadyError.
//
// The caller has called PrepareProcess and runs r. A desktop takes every
// process below the caller for its own: stopping it ends them all.
func Start(ctx context.Context, o Options, r *Reaper) (*Desktop, error) {
	plan, err := NewPlan(o, finder(o.Env))
	if err != nil {
		return nil, err
	}
	for _, p := range []Program{plan.XServer, plan.Bus} {
		if err := outOfReach(p); err != nil {
			return nil, err
		}
	}
	if err := checkFree(display.Number(plan.Options.Display)); err != nil {
		return nil, err
	}
	if !r.take() {
		return nil, &HeldError{What: "this session"}
	}
	place, err := preparePlace(plan.Options)
	if err != nil {
		r.leave()
		return nil, err
	}
	d := newDesktop(plan, place, r)
	if err := d.bringUp(ctx); err != nil {
		d.finish(err, 0)
		return nil, err
	}
	go d.supervise()
	return d, nil
}

// bringUp runs the steps of a start. What it leaves behind on an error, the
// caller ends.
func (d *Desktop) bringUp(ctx context.Context) error {
	if err := d.place.authorize(d.Display(), d.cookie); err != nil {
		return err
	}
	// ctx ends with the first program that dies, and with its reason.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := d.startBase(ctx, fail); err != nil {
		return d.explain(ctx, err, []string{nameXServer + " did not accept clients"})
	}
	d.emit(Event{Kind: EventXServerReady})
	if err := d.connect(ctx); err != nil {
		return d.explain(ctx, err, []string{nameXServer + " did not accept our client"})
	}
	started, err := d.startComponents(d.plan.Components, fail)
	if err != nil {
		return err
	}
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	d.emit(Event{Kind: EventPainted})
	late, err := d.startComponents(d.plan.Late, fail)
	if err != nil {
		return err
	}
	d.components = append(started, late...)
	return d.place.publish(d.plan.Options, d.plan.Components[0].Env)
}

// startBase starts Xvnc and, beside it, what needs no display.
func (d *Desktop) startBase(ctx context.Context, fail context.CancelCauseFunc) error {
	settled := make(chan error, 1)
	go func() { settled <- d.startSettings(ctx, fail) }()
	err := d.startServer(ctx, fail)
	if err != nil {
		fail(err) // ends the wait of the other branch
	}
	return errors.Join(err, <-settled)
}

func (d *Desktop) startServer(ctx context.Context, fail context.CancelCauseFunc) error {
	x, err := d.launchServer(ctx, d.plan.XServer)
	if x == nil {
		return err
	}
	d.x = x
	d.addCore(x.child)
	if err != nil {
		return asTaken(err, d.plan.Options.Display)
	}
	go d.failWith(x.child, fail)
	d.tmp = claimXFiles(d.Display(), x.pid)
	d.door, err = closeDoorBehind(d.plan.Options.rfbSocket(), x.pid)
	return err
}

// startSettings writes the settings and starts the bus and, on it, xfconfd. Both
// run before the RFB socket's path is gone and so get nothing but files of the
// system and the clean environment.
func (d *Desktop) startSettings(ctx context.Context, fail context.CancelCauseFunc) error {
	o := d.plan.Options
	drawn := make(chan error, 1)
	go func() { drawn <- ensureWallpaper(o.wallpaper(), o.WidthPx, o.HeightPx) }()
	bus, err := d.startBus(ctx)
	if bus != nil {
		d.addCore(bus)
	}
	if err != nil {
		return err
	}
	go d.failWith(bus, fail)
	if err := plant(o.ConfigHome, d.plan.Files); err != nil {
		return err
	}
	if err := errors.Join(o.giveIcon(), o.plantOpener()); err != nil {
		return err
	}
	if d.plan.Xfconf != nil {
		xfconf, err := d.launcher.start(*d.plan.Xfconf)
		if err != nil {
			return err
		}
		d.addCore(xfconf) // the bus starts another one should it die
	}
	return <-drawn
}

// startBus starts the bus and waits until it listens.
func (d *Desktop) startBus(ctx context.Context) (*child, error) {
	ready, signalReady, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", nameBus, err)
	}
	defer ready.Close()
	bus, err := d.launcher.start(d.plan.Bus, signalReady)
	_ = signalReady.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err == nil {
		return bus, nil
	}
	select {
	case <-bus.exited:
		return bus, bus.died(d.logs)
	case <-ctx.Done():
		return bus, context.Cause(ctx)
	}
}

// startComponents starts the Xfce components all at once; on their own they
// wait for what they need of each other.
func (d *Desktop) startComponents(programs []Program, fail context.CancelCauseFunc) ([]component, error) {
	var started []component
	for _, p := range programs {
		c, err := d.launchPart(p)
		if err != nil {
			return nil, err
		}
		started = append(started, component{p, c})
		if p.Name != nameSettings { // the desktop comes up without it, too
			go d.failWith(c, fail)
		}
	}
	return started, nil
}

// failWith ends the start when c dies during it. Without an X server everybody
// dies: then it is the one to blame.
func (d *Desktop) failWith(c *child, fail context.CancelCauseFunc) {
	<-c.exited
	select {
	case <-d.stopping:
		return
	default:
	}
	if c.name != nameXServer && d.x != nil {
		const blame = 100 * time.Millisecond
		select {
		case <-d.x.exited:
			c = d.x.child
		case <-time.After(blame):
		}
	}
	fail(c.died(d.logs))
}

// awaitReady waits for rule S6 and says what is missing when ctx ends first.
func (d *Desktop) awaitReady(ctx context.Context) error {
	greeted := make(chan error, 1)
	go func() { greeted <- d.door.greet(ctx) }()
	var missing []string
	err := d.watch(ctx, &missing)
	if err == nil {
		missing = []string{nameXServer + " did not greet an RFB client"}
		err = <-greeted
	}
	return d.explain(ctx, err, missing)
}

// connect makes our own connection to the display, the one that lasts as long as
// the desktop, and sees to the keyboard before any other program comes.
func (d *Desktop) connect(ctx context.Context) error {
	view, err := dialX(ctx, d.Display(), d.cookie, d.x.pid)
	if err != nil {
		return err
	}
	d.view = view
	var changed func()
	if d.plan.Options.ClipboardEvents {
		changed = func() { d.emit(Event{Kind: EventClipboard}) }
	}
	if d.clip, err = openClipboard(ctx, d.Display(), d.cookie, d.x.pid, changed); err != nil {
		return err
	}
	if d.plan.Options.KeyboardLayout == builtinLayout {
		return nil
	}
	return d.SetKeyboardLayout(ctx, d.plan.Options.KeyboardLayout)
}

func (d *Desktop) watch(ctx context.Context, missing *[]string) error {
	w, err := newWatcher(d.view, d.step)
	if err != nil {
		return err
	}
	defer func() { *missing = w.missing() }()
	return w.run(ctx)
}

func (d *Desktop) step(what string) {
	if what == "wm" {
		d.emit(Event{Kind: EventWMReady})
	}
}

// explain turns the error of a step into that of the start: the death of a
// program where one died, the missing steps where time ran out.
func (d *Desktop) explain(ctx context.Context, err error, missing []string) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	var died *DiedError
	switch {
	case errors.As(err, new(*DisplayTakenError)), errors.As(err, &died):
		return firstOf(err)
	case errors.As(cause, &died):
		return died
	case cause != nil && errors.Is(err, cause):
		return &NotReadyError{Missing: missing, Cause: cause, Lines: d.lastFew()}
	}
	return fmt.Errorf("start desktop: %w", err)
}

// firstOf picks the error to branch on out of those that came together.
func firstOf(err error) error {
	var taken *DisplayTakenError
	if errors.As(err, &taken) {
		return taken
	}
	var died *DiedError
	if errors.As(err, &died) {
		return died
	}
	return err
}

// lastFew are the last lines for an error, without Xvnc's chatter about its
// connections where others have said something.
func (d *Desktop) lastFew() []string {
	lines := d.logs.last("")
	others := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, nameXServer+":") })
	if len(others) > 0 {
		lines = others
	}
	return lines[max(0, len(lines)-linesInMessages):]
}

func (d *Desktop) addCore(c *child) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.core = append(d.core, c)
}

func (d *Desktop) coreChildren() []*child {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.core)
}
