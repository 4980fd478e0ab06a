// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

func (e *everything) MintTicket(_ context.Context, caller Caller, req control.TicketRequest) (control.Ticket, error) {
	e.record(caller)
	return control.Ticket{ID: "t1", Secret: "s3cret", Mode: req.Mode, Viewer: req.Viewer.Handle(), Expires: time.Unix(30, 0), Address: "https://node:1"}, nil
}

func (e *everything) RevokeTicket(_ context.Context, caller Caller, id string) error {
	e.record(caller)
	if id != "t1" {
		return &control.Error{Kind: control.NotFound, Message: "There is no such ticket."}
	}
	return nil
}

func (e *everything) View(_ context.Context, caller Caller, req control.ViewRequest) (func(context.Context, net.Conn), error) {
	return func(_ context.Context, conn net.Conn) {
		defer conn.Close()
		fmt.Fprintf(conn, "%s %s %t\n", caller.Role, req.Mode, req.Web)
	}, nil
}

func TestTickets(t *testing.T) {
	c := open(t, newEverything(), screen.RoleOperator)
	ticket, err := c.MintTicket(t.Context(), control.TicketRequest{Mode: control.Control, Viewer: "ann"})
	if err != nil || ticket.ID != "t1" || ticket.Viewer != lease.ViewerID("ann").Handle() || ticket.URL() != "https://node:1/#ticket=s3cret" {
		t.Errorf("%+v, %v", ticket, err)
	}
	if text := fmt.Sprintf("%v %+v", ticket, ticket); strings.Contains(text, "s3cret") {
		t.Errorf("printed as %s", text)
	}
	if err := c.RevokeTicket(t.Context(), "t1"); err != nil {
		t.Error(err)
	}
	if err := c.RevokeTicket(t.Context(), "t2"); control.KindOf(err) != control.NotFound {
		t.Errorf("an unknown ticket: %v", err)
	}
	_, err = c.MintTicket(t.Context(), control.TicketRequest{Mode: "type", Viewer: "\x1b"})
	if control.KindOf(err) != control.BadRequest || !strings.Contains(err.Error(), "mode:") || !strings.Contains(err.Error(), "viewer:") {
		t.Errorf("two faults: %v", err)
	}
}

// SEC-03: what a door is not for it does not do, whatever it is sent: neither an agent
// nor a viewer mints, and a viewer of one id is none of another.
func TestSEC03OnlyOperatorsMint(t *testing.T) {
	for _, role := range []screen.Role{screen.RoleAgent, screen.RoleViewer, screen.RoleControl} {
		c := open(t, newEverything(), role)
		if _, err := c.MintTicket(t.Context(), control.TicketRequest{}); control.KindOf(err) != control.Forbidden {
			t.Errorf("%s mints: %v", role, err)
		}
		if err := c.RevokeTicket(t.Context(), "t1"); control.KindOf(err) != control.Forbidden {
			t.Errorf("%s revokes: %v", role, err)
		}
	}
}

// GET rfb is the stream of the viewer whose door it is.
func TestRFBStream(t *testing.T) {
	c := open(t, newEverything(), screen.RoleControl)
	conn, err := c.Stream(t.Context(), control.CallRFB, map[string][]string{"mode": {"control"}, "web": {"true"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); err != nil || string(text) != "control control true\n" {
		t.Errorf("%q, %v", text, err)
	}
	_, err = c.Stream(t.Context(), control.CallRFB, map[string][]string{"mode": {"type"}, "web": {"yes"}}, nil)
	if control.KindOf(err) != control.BadRequest || !strings.Contains(err.Error(), "mode:") || !strings.Contains(err.Error(), "web:") {
		t.Errorf("two faults: %v", err)
	}
	operator := open(t, newEverything(), screen.RoleOperator)
	if _, err := operator.Stream(t.Context(), control.CallRFB, nil, nil); control.KindOf(err) != control.Forbidden {
		t.Errorf("an operator's door, which is no viewer's: %v", err)
	}
}
