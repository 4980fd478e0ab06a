// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/display"
)

// Desktop is a running desktop. Its methods may be called at any time and from
// any goroutine.
type Desktop struct {
	plan     Plan
	launcher *launcher
	logs     *logs
	place    *place
	cookie   display.Cookie
	events   chan Event

	// Set while it is brought up, constant afterwards.
	x    *xserver
	door *rfbDoor
	view *xclient
	clip *clipboard
	tmp  *xfiles

	components []component

	stopping chan struct{} // closed when no program is to be started any more
	done     chan struct{} // closed when nothing is left
	fenced   chan struct{} // closed when fence is set
	fence    Fence         // written before fenced is closed
	err      error         // written before done is closed

	mu       sync.Mutex // guards the rest
	core     []*child   // Xvnc, bus, xfconfd: what the others need until their end
	parts    []*child   // the Xfce components, as they were started
	command  *child     // the job's own program, once it was started
	stopOnce sync.Once

	untrusted untrustedCookie
	compare   sync.Once
}

// eventRoom is far more than a desktop has events between two looks of a reader.
const eventRoom = 256

// newDesktop takes over place, and the processes of reaper, until finish.
func newDesktop(plan Plan, place *place, reaper *Reaper) *Desktop {
	l := newLogs(plan.Options.Log, time.Now)
	d := &Desktop{
		plan: plan, logs: l, place: place,
		launcher: &launcher{reaper: reaper, logs: l, dir: plan.Options.Home},
		cookie:   display.NewCookie(),
		events:   make(chan Event, eventRoom),
		stopping: make(chan struct{}), done: make(chan struct{}), fenced: make(chan struct{}),
	}
	go d.deliver()
	return d
}

// deliver hands events to Options.Notify until the desktop is done.
func (d *Desktop) deliver() {
	for {
		select {
		case e := <-d.events:
			if d.plan.Options.Notify != nil {
				d.plan.Options.Notify(e)
			}
		case <-d.done:
			return
		}
	}
}

func (d *Desktop) emit(e Event) {
	select {
	case d.events <- e:
	case <-d.done:
	default: // a reader that far behind has lost the thread anyway
	}
}

// Done is closed when the desktop has ended and nothing of it is left.
func (d *Desktop) Done() <-chan struct{} { return d.done }

// Err says why the desktop ended by itself, for example a *DiedError of Xvnc,
// or what Stop could not end. It is nil before Done is closed and after an
// ordinary Stop.
func (d *Desktop) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// XServerPID is the pid of Xvnc as this process sees it.
func (d *Desktop) XServerPID() int { return d.x.pid }

// Display is the number the desktop runs on.
func (d *Desktop) Display() display.Number { return display.Number(d.plan.Options.Display) }

// Env is the environment for further programs on this desktop.
func (d *Desktop) Env() []string {
	return slices.Clone(d.plan.Components[0].Env)
}

// LastLines returns the last lines that programs wrote, each with its
// program's name, cleaned of control characters but otherwise untrusted.
func (d *Desktop) LastLines() []string { return d.logs.last("") }

// DialRFB opens a new connection to Xvnc's RFB side, non-blocking, checked to
// be Xvnc's by the kernel. The caller owns the file.
func (d *Desktop) DialRFB(ctx context.Context) (*os.File, error) { return d.door.dial(ctx) }

// Fence waits for the self-test that follows each start and returns its result.
func (d *Desktop) Fence(ctx context.Context) (Fence, error) {
	select {
	case <-d.fenced:
		return d.fence, nil
	case <-d.done:
		return Fence{}, errors.New("test fence: the desktop has ended")
	case <-ctx.Done():
		return Fence{}, context.Cause(ctx)
	}
}
