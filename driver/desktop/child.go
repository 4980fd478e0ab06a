// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is one running program of the desktop.
type child struct {
	name    string
	pid     int
	started time.Time
	exited  chan struct{}   // closed when its status is known
	drained <-chan struct{} // closed when its output has been read to the end
	process *os.Process     // for signals: it never reaches a successor of the pid

	// Written before exited is closed.
	state *os.ProcessState
	ended time.Time
}

// launcher starts programs with their output going to the log.
type launcher struct {
	reaper *Reaper
	logs   *logs
	dir    string // working directory
}

// start runs p in a session of its own, with default signals, no input and no
// descriptor but its output and extra, which become 3, 4, … in it.
func (l *launcher) start(p Program, extra ...*os.File) (*child, error) {
	out, drained, err := l.logs.pipe(p.Name)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := &exec.Cmd{
		Path: p.Path, Args: append([]string{p.Path}, p.Args...), Env: p.Env, Dir: l.dir,
		Stdout: out, Stderr: out, ExtraFiles: extra,
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	c := &child{name: p.Name, started: time.Now(), exited: make(chan struct{}), drained: drained}
	if err := l.reaper.startAs(cmd, scoreOf(p)); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	c.pid, c.process = cmd.Process.Pid, cmd.Process
	go c.await(func() (*os.ProcessState, error) {
		err := l.reaper.Wait(cmd)
		return cmd.ProcessState, err
	})
	return c, nil
}

func (c *child) await(wait func() (*os.ProcessState, error)) {
	c.state, _ = wait() // a status other than 0 comes as an error, too
	c.ended = time.Now()
	close(c.exited)
}

// died describes the end of a child that has exited, with its last lines. It
// waits a moment for the output, which a grandchild may hold open for ever.
func (c *child) died(l *logs) *DiedError {
	c.awaitOutput()
	return &DiedError{
		Program: c.name, Status: describeStatus(c.state),
		After: c.ended.Sub(c.started), LastLines: l.lastOf(c.name),
	}
}

// awaitOutput waits a moment for the output of a child that has exited.
func (c *child) awaitOutput() {
	const outputGrace = 200 * time.Millisecond
	select {
	case <-c.drained:
	case <-time.After(outputGrace):
	}
}

// exitCode is the exit status as a shell has it: 128 + the signal for a killed
// program.
func exitCode(state *os.ProcessState) int {
	status, ok := waitStatus(state)
	switch {
	case !ok:
		return -1
	case status.Signaled():
		return 128 + int(status.Signal())
	default:
		return status.ExitStatus()
	}
}

func describeStatus(state *os.ProcessState) string {
	status, ok := waitStatus(state)
	switch {
	case !ok:
		return "ended"
	case status.Signaled():
		return fmt.Sprintf("killed by signal %d (%s)", status.Signal(), unix.SignalName(status.Signal()))
	default:
		return fmt.Sprintf("exited %d", status.ExitStatus())
	}
}

func waitStatus(state *os.ProcessState) (syscall.WaitStatus, bool) {
	if state == nil {
		return 0, false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return status, ok
}
