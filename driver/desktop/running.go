// SPDX-License-Identifier: MPL-2.0

package desktop

import "os"

// Running is a program that was started on the desktop by Launch. It ends with the desktop
// at the latest.
type Running struct {
	child *child
	logs  *logs
}

// Launch starts a further program on the desktop, in a session of its own, with its output
// going to the log under the name; files become its descriptors 3, 4, … and stay the
// caller's. It fails while the desktop stops.
func (d *Desktop) Launch(p Program, files ...*os.File) (*Running, error) {
	c, err := d.launch(p, files...)
	if err != nil {
		return nil, err
	}
	return &Running{child: c, logs: d.logs}, nil
}

// PID is the program's.
func (r *Running) PID() int { return r.child.pid }

// Done is closed when the program has ended.
func (r *Running) Done() <-chan struct{} { return r.child.exited }

// ExitCode is good once Done is closed: 128 + the signal for a program that one ended.
func (r *Running) ExitCode() int { return exitCode(r.child.state) }

// Status is ExitCode in words.
func (r *Running) Status() string { return describeStatus(r.child.state) }

// LastLines are the last lines the program wrote, cleaned of control characters but
// otherwise untrusted. Of one that has ended they are complete, but for what a process it
// left behind may still write.
func (r *Running) LastLines() []string {
	select {
	case <-r.child.exited:
		r.child.awaitOutput()
	default:
	}
	return r.logs.lastSince(r.child.name, r.child.started)
}

// Signal never reaches a successor of the pid.
func (r *Running) Signal(sig os.Signal) error { return r.child.process.Signal(sig) }
