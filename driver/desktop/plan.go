// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of the programs as they stand in events, errors and logs.
const (
	nameXServer  = "Xvnc"
	nameBus      = "dbus-daemon"
	nameXfconf   = "xfconfd"
	nameSettings = "xfsettingsd"
	nameWM       = "xfwm4"
	nameDesktop  = "xfdesktop"
	namePanel    = "xfce4-panel"
	nameCommand  = "command"
)

// Program is one program of a plan.
type Program struct {
	Name string
	Path string   // absolute
	Args []string // without the program itself
	Env  []string
}

// Plan is everything a start does, decided beforehand. It starts nothing.
type Plan struct {
	Options Options // with defaults

	XServer    Program
	Bus        Program
	Xfconf     *Program  // nil where it is left to the bus to start it
	Components []Program // all started at once
	Late       []Program // started when the desktop is ready
	Keymap     Program   // run for each change of the keyboard layout
	Command    *Program
	Files      []Seed // below ConfigHome, each only where absent
}

// MissingError names every required program that is absent.
type MissingError struct{ Programs []string }

func (e *MissingError) Error() string {
	return "look for programs: missing: " + strings.Join(e.Programs, ", ")
}

// NewPlan decides what runs. find returns the absolute path of a program, as
// exec.LookPath does; every program it does not find is named in one
// MissingError.
func NewPlan(o Options, find func(program string) (string, error)) (Plan, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return Plan{}, fmt.Errorf("plan desktop: %w", err)
	}
	p := Plan{Options: o}
	missing := &MissingError{}
	path := func(program string) string {
		found, err := find(program)
		if err != nil {
			missing.Programs = append(missing.Programs, program)
		}
		return found
	}
	env, serverEnv := environment(o), serverEnvironment(o)
	p.XServer = Program{Name: nameXServer, Path: path(nameXServer), Args: xserverArgs(o), Env: serverEnv}
	p.Bus = Program{Name: nameBus, Path: path(nameBus), Args: busArgs(o), Env: serverEnv}
	if found, err := find(nameXfconf); err == nil {
		p.Xfconf = &Program{Name: nameXfconf, Path: found, Env: serverEnv}
	}
	component := func(name string, args ...string) Program {
		return Program{Name: name, Path: path(name), Args: args, Env: env}
	}
	// In this order: background and panel wait for the window manager.
	p.Components = []Program{
		component(nameWM, "--compositor=off"),
		component(nameDesktop, "--disable-wm-check"),
		component(namePanel, "--disable-wm-check"),
	}
	p.addSettings(component(nameSettings, "--disable-wm-check"))
	p.Keymap = component(nameKeymap, "-w", "0", "-", fmt.Sprintf(":%d", o.Display))
	p.Keymap.Env = serverEnv
	if len(o.Command) > 0 {
		p.Command = &Program{Name: nameCommand, Path: path(o.Command[0]), Args: o.Command[1:], Env: env}
	}
	if len(missing.Programs) > 0 {
		return Plan{}, missing
	}
	var err error
	p.Files, err = seeds(o)
	return p, err
}

// addSettings decides when the settings daemon comes. It says what GTK's own settings file
// says already, so nothing changes when it comes late, and the desktop is ready 30 ms earlier.
// But then all programs read their theme once more: together that takes 115 ms of processor
// time and 2.5 MB, which is too much where others wait for the processor.
func (p *Plan) addSettings(settings Program) {
	if p.Options.Crowded {
		p.Components = slices.Insert(p.Components, 0, settings)
	} else {
		p.Late = []Program{settings}
	}
}

// builtinLayout is the keyboard layout that Xvnc comes up with.
const builtinLayout = "us"

// displayDescriptor is where Xvnc writes its display number when it is ready:
// the first descriptor above stderr.
const displayDescriptor = 3

// xserverArgs are rules S1, S3, X0, X2, X3 and X24 as Xvnc(1) and Xserver(1)
// spell them.
func xserverArgs(o Options) []string {
	args := []string{
		fmt.Sprintf(":%d", o.Display),
		"-displayfd", strconv.Itoa(displayDescriptor),
		"-geometry", fmt.Sprintf("%dx%d", o.WidthPx, o.HeightPx),
		"-depth", strconv.Itoa(o.Depth),
		"-dpi", strconv.Itoa(o.DPI),
		"-auth", o.xauthority(),
		// One door: a Unix socket for us. Without -rfbport -1 a TCP port would
		// be open on all interfaces beside it.
		"-rfbport", "-1",
		"-rfbunixpath", o.rfbSocket(),
		"-rfbunixmode", "0600",
		"-SecurityTypes", "None",
		"-AlwaysShared",
		"-UseBlacklist=0", // five probes must not lock every viewer out for 10 s
		"-nolisten", "tcp",
		"-noreset",
		// The clipboard never travels in RFB, and no X client turns it on again.
		"-MaxCutText", "262144",
		"-SendCutText=0", "-AcceptCutText=0", "-SendPrimary=0", "-SetPrimary=0",
		"-" + parameterCompare + "=" + compareNever,
		"-AllowOverride=" + parameterCompare, // the one that takes nothing from anybody
		// No recording or faking of input, and cookies that are worth less.
		"-extension", "RECORD", "-extension", "XTEST", "+extension", "SECURITY",
		// The picture never goes blank, whatever asks for it.
		"-s", "0", "-dpms", "v", "-extension", "DPMS", "-extension", "MIT-SCREEN-SAVER",
	}
	if !o.GLX {
		args = append(args, "-extension", "GLX") // it would cost 1.6 times the start
	}
	return args
}

// busArgs make a private bus on a path, never on an abstract name, which other
// users of the network namespace could take (rule X16).
func busArgs(o Options) []string {
	return []string{
		"--session", "--nofork", "--nopidfile", "--nosyslog",
		"--address=" + busAddress(o.busSocket()),
		"--print-address=" + strconv.Itoa(displayDescriptor),
	}
}
