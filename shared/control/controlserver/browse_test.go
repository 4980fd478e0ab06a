// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// browsable is a supervisor whose browser sends back what it gets, until the caller leaves.
type browsable struct {
	onlyStatus
	roles chan screen.Role
	held  *control.Error // why the agent may not
}

type echo struct{}

func (echo) Carry(conn net.Conn) { io.Copy(conn, conn); conn.Close() }
func (echo) Drop()               {}

func (b browsable) Browse(_ context.Context, caller Caller) (Carrier, error) {
	b.roles <- caller.Role
	if b.held != nil {
		return nil, b.held
	}
	return echo{}, nil
}

// L15: the browser is the agent's, at its own door and through the reserved command, and a
// refusal says why; no other door opens it.
func TestL15BrowserDoors(t *testing.T) {
	b := browsable{roles: make(chan screen.Role, 10)}
	through := func(conn net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if role := <-b.roles; role != screen.RoleAgent {
			t.Errorf("it comes as %s", role)
		}
		got := make([]byte, 5)
		io.WriteString(conn, "hello")
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	client := func(b Backend, role screen.Role) *control.Client {
		_, path := openSocket(t, b, role)
		c := control.NewClient(control.Unix(path))
		t.Cleanup(func() { c.Close() })
		return c
	}
	tunnel := func(c *control.Client) (net.Conn, error) {
		t.Helper()
		conn, err := c.Tunnel(t.Context(), control.CommandCDP)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Close() })
		return conn, control.OpenTunnel(t.Context(), conn, control.Hello{})
	}
	through(client(b, screen.RoleAgent).Stream(t.Context(), control.CallCDP, nil, nil))
	through(tunnel(client(b, screen.RoleOperator)))
	for _, role := range []screen.Role{screen.RoleOperator, screen.RoleControl, screen.RoleViewer} {
		if _, err := client(b, role).Stream(t.Context(), control.CallCDP, nil, nil); control.KindOf(err) != control.Forbidden {
			t.Errorf("%s: %v", role, err)
		}
	}
	b.held = &control.Error{Kind: control.HumanHasControl, Message: "A person has control.", Next: "Wait."}
	for _, err := range []error{
		second(client(b, screen.RoleAgent).Stream(t.Context(), control.CallCDP, nil, nil)),
		second(tunnel(client(b, screen.RoleOperator))),
	} {
		var refusal *control.Error
		if !errors.As(err, &refusal) || refusal.Kind != control.HumanHasControl || refusal.Next != "Wait." {
			t.Errorf("%v", err)
		}
	}
	if _, err := tunnel(client(onlyStatus{}, screen.RoleOperator)); control.KindOf(err) != control.BadRequest {
		t.Errorf("a supervisor without a browser: %v", err)
	}
}

func second(_ net.Conn, err error) error { return err }
