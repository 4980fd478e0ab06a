// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FenceProbeCommand is the argument under which our main calls FenceProbeMain.
const FenceProbeCommand = "fence-probe"

// probeLimit bounds the self-test; it takes some milliseconds.
const probeLimit = 10 * time.Second

// probeTask is what the probe gets on stdin: whom to try to break into.
type probeTask struct {
	RFBSocket string `json:"rfb_socket"`
	XServer   int    `json:"xserver"`
	Session   int    `json:"session"`
}

// probeReport is the probe's answer on stdout.
type probeReport struct {
	Tried    []string `json:"tried"`
	Breaches []string `json:"breaches"` // what worked, in words
}

// testFence lets a program of the desktop try everything it could (rule X2) and
// keeps the result. Only a test in which all failed makes the fence enforced.
func (d *Desktop) testFence() {
	defer close(d.fenced)
	listener, err := inetListener(d.plan.Options.Display)
	if err == nil && listener != "" {
		err = fmt.Errorf("check sockets: %s listens on %s, no network socket is allowed", nameXServer, listener)
		d.fence = Fence{Reason: err.Error()}
		go d.stop(err, 0) // rule X0
		return
	}
	d.fence = d.judge(err)
	d.emit(Event{Kind: EventFence, Detail: d.fence.Reason})
}

func (d *Desktop) judge(unread error) Fence {
	var reasons []string
	if unread != nil {
		reasons = append(reasons, "network sockets could not be listed: "+unread.Error())
	}
	if d.x.hidden != nil {
		reasons = append(reasons, d.x.hidden.Error())
	}
	report, err := d.probe()
	switch {
	case err != nil:
		reasons = append(reasons, "the self-test could not run: "+err.Error())
	case len(report.Tried) == 0:
		reasons = append(reasons, "the self-test tried nothing")
	}
	reasons = append(reasons, report.Breaches...)
	return Fence{Enforced: len(reasons) == 0, Reason: strings.Join(reasons, "; ")}
}

// probe runs our binary as an ordinary program of the desktop.
func (d *Desktop) probe() (probeReport, error) {
	o := d.plan.Options
	task, err := json.Marshal(probeTask{RFBSocket: o.rfbSocket(), XServer: d.x.pid, Session: os.Getpid()})
	if err != nil {
		return probeReport{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	var answer, trouble bytes.Buffer
	cmd := exec.CommandContext(ctx, o.Executable, FenceProbeCommand)
	cmd.Args[0] = "botscreen-session"
	cmd.Env, cmd.Dir = d.plan.Components[0].Env, o.Home
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(task), &answer, &trouble
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	if err := d.startUnlessStopping(cmd); err != nil {
		return probeReport{}, err
	}
	if err := d.launcher.reaper.Wait(cmd); err != nil {
		return probeReport{}, fmt.Errorf("%w: %q", err, cleanLine(trouble.String()))
	}
	var report probeReport
	if err := json.Unmarshal(answer.Bytes(), &report); err != nil {
		return probeReport{}, fmt.Errorf("read report: %w", err)
	}
	return report, nil
}

func (d *Desktop) startUnlessStopping(cmd *exec.Cmd) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isStopping() {
		return fmt.Errorf("the desktop is stopping")
	}
	return d.launcher.reaper.Start(cmd)
}
