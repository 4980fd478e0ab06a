// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// Caller is who makes a call, as far as the door knows it.
type Caller struct {
	Role screen.Role
	// UID and PID are the peer's by the kernel, -1 where the door has no such
	// peer; then the caller is only claimed.
	UID, PID int
	// Refusal is why this peer may make no call at all; nil: it may make its role's.
	Refusal *control.Error
	// Viewer is the id a viewer's connection was opened for.
	Viewer lease.ViewerID
}

// Backend is what every supervisor can do. It may implement more of the
// interfaces below: a call whose interface is missing does not exist.
//
// An error that is a *control.Error reaches the caller as it is; any other is
// the supervisor's fault and reaches it as kind internal. ctx ends with the
// caller's connection or the server.
type Backend interface {
	Status(ctx context.Context, caller Caller) (control.Status, error)
}

// EventSource serves GET events.
type EventSource interface {
	// EventsAfter returns the remembered events numbered above since, oldest
	// first; while there are none it waits for one or for the end of ctx.
	EventsAfter(ctx context.Context, since uint64) ([]control.Event, error)
}

// LeaseReader serves GET lease.
type LeaseReader interface {
	Lease(ctx context.Context) (lease.Public, error)
}

// LeaseChanger serves POST lease/take and POST lease/release. The server has
// decided already whose viewer it is and that only an operator forces.
type LeaseChanger interface {
	Take(ctx context.Context, caller Caller, req control.TakeRequest) (lease.Public, error)
	Release(ctx context.Context, caller Caller, req control.ReleaseRequest) (lease.Public, error)
}

// Asker serves POST asks and GET asks/{id}.
type Asker interface {
	Ask(ctx context.Context, caller Caller, req control.AskRequest) (control.Ask, error)
	// AwaitAsk returns when the ask is over, at the latest after wait.
	AwaitAsk(ctx context.Context, id string, wait time.Duration) (control.AskOutcome, error)
}

// Screenshooter serves GET screenshot. The server lets one picture be taken at a
// time.
type Screenshooter interface {
	Screenshot(ctx context.Context, caller Caller, req control.ScreenshotRequest) (control.Screenshot, error)
}

// Actor serves POST input. The server lets one list of actions be done at a time.
type Actor interface {
	Input(ctx context.Context, caller Caller, req control.InputRequest) (control.InputAnswer, error)
}

// Desk serves GET windows, GET cursor, GET clipboard and PUT clipboard.
type Desk interface {
	Windows(ctx context.Context, caller Caller) (control.Windows, error)
	Cursor(ctx context.Context, caller Caller) (control.Cursor, error)
	Clipboard(ctx context.Context, caller Caller) (control.Clipboard, error)
	SetClipboard(ctx context.Context, caller Caller, req control.ClipboardRequest) error
}

// Opener serves POST browser/open and POST browser/close.
type Opener interface {
	CloseBrowser(ctx context.Context, caller Caller) error
	OpenBrowser(ctx context.Context, caller Caller, req control.BrowserRequest) (control.BrowserAnswer, error)
}

// Stopper serves POST stop. Stop returns when nothing of the screen is left.
type Stopper interface {
	Stop(ctx context.Context, caller Caller, req control.StopRequest) error
}

// Signaller serves POST signal.
type Signaller interface {
	Signal(ctx context.Context, caller Caller, req control.SignalRequest) error
}

// Waiter serves GET wait: it returns when the screen has ended.
type Waiter interface {
	Wait(ctx context.Context) (control.Exit, error)
}

// StatsReader serves GET stats.
type StatsReader interface {
	Stats(ctx context.Context) (control.Stats, error)
}

// Execer serves POST exec. ctx ends with the stream.
type Execer interface {
	Exec(ctx context.Context, caller Caller, req control.ExecRequest) (Process, error)
}

// Viewable serves the reserved command botscreen:rfb and GET rfb.
type Viewable interface {
	// View admits a viewer; caller.Viewer is its id. The function it returns relays
	// between the viewer and the screen, owns conn and returns when either has ended.
	View(ctx context.Context, caller Caller, req control.ViewRequest) (func(ctx context.Context, conn net.Conn), error)
}

// Browsable serves the reserved command botscreen:cdp and GET cdp.
type Browsable interface {
	// Browse opens a connection to the screen's browser for the agent.
	Browse(ctx context.Context, caller Caller) (Carrier, error)
}

// Carrier is a connection that waits for its caller's.
type Carrier interface {
	// Carry carries bytes between conn, which it owns, and its connection, and returns
	// when both have ended.
	Carry(conn net.Conn)
	// Drop closes it in place of Carry.
	Drop()
}

// Ticketer serves POST tickets and DELETE tickets/{id}.
type Ticketer interface {
	MintTicket(ctx context.Context, caller Caller, req control.TicketRequest) (control.Ticket, error)
	// RevokeTicket ends a ticket and the view it opened, or, for control.AllTickets, all of them; one that there is not is a
	// refusal of kind not_found.
	RevokeTicket(ctx context.Context, caller Caller, id string) error
}

// Process is a program that runs inside the session. The server closes Stdin
// (perhaps twice), reads and closes both outputs, and calls Wait once. Close must
// end a Read or Write that blocks, as it does for pipes.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser // nil on a terminal
	Resize(control.TerminalSize) error
	// Wait returns when the program has ended; outputs may still hold bytes.
	Wait() control.ExecResult
	// Kill ends the program and all it started; Wait returns soon after.
	Kill()
}
