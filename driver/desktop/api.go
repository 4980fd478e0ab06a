// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

var errTODO = errors.New("not built yet")

// PrepareProcess makes this process fit to be a session. See prepare.go.
func PrepareProcess() error { return errTODO }

// Reaper collects children nobody waits for.
type Reaper struct{}

// NewReaper returns a reaper; Run makes it work.
func NewReaper() *Reaper { return &Reaper{} }

// Run reaps orphans until ctx ends.
func (r *Reaper) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Start starts cmd and claims its exit status for cmd.Wait, see Wait.
func (r *Reaper) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Wait is cmd.Wait for a command that Start started.
func (r *Reaper) Wait(cmd *exec.Cmd) error { return cmd.Wait() }

// Start brings the desktop up and returns when it is painted.
func Start(ctx context.Context, o Options, r *Reaper) (*Desktop, error) { return nil, errTODO }

// Desktop is a running desktop.
type Desktop struct{}

// Stop ends everything below this process: TERM, grace, KILL.
func (d *Desktop) Stop(ctx context.Context, grace time.Duration) error { return errTODO }

// Done is closed when the desktop has ended and nothing of it is left.
func (d *Desktop) Done() <-chan struct{} { return nil }

// Err says why the desktop ended; nil after Stop.
func (d *Desktop) Err() error { return errTODO }

// DialRFB opens a new connection to Xvnc. The caller owns the file.
func (d *Desktop) DialRFB(ctx context.Context) (*os.File, error) { return nil, errTODO }

// XServerPID is the pid of Xvnc in this process' pid namespace.
func (d *Desktop) XServerPID() int { return 0 }

// Env is the environment for further programs on this desktop.
func (d *Desktop) Env() []string { return nil }

// Fence waits for the self-test and returns its result.
func (d *Desktop) Fence(ctx context.Context) (Fence, error) { return Fence{}, errTODO }

// Windows lists the top-level windows, bottom to top.
func (d *Desktop) Windows(ctx context.Context) ([]Window, error) { return nil, errTODO }

// LastLines returns the last lines of the desktop's output.
func (d *Desktop) LastLines() []string { return nil }

// FenceProbeCommand is the hidden argument under which main calls FenceProbeMain.
const FenceProbeCommand = "fence-probe"

// FenceProbeMain runs the fence self-test as a program of the desktop and returns the exit code.
func FenceProbeMain(args []string) int { return 1 }

// DisplayTakenError says that another server has the display number; the
// caller picks the next one.
type DisplayTakenError struct{ Display int }

func (e *DisplayTakenError) Error() string { return "display taken" }

// MissingError names every required program that is absent and its package.
type MissingError struct{ Programs []string }

func (e *MissingError) Error() string { return "missing programs" }
