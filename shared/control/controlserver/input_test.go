// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/screen"
)

// acting does every list at once and keeps it.
type acting struct {
	onlyStatus
	done chan control.InputRequest
}

func (a acting) Input(_ context.Context, _ Caller, req control.InputRequest) (control.InputAnswer, error) {
	a.done <- req
	return control.InputAnswer{Epoch: req.Epoch, Done: len(req.Actions)}, nil
}

// The door decides who may act: the agent's alone. An operator is no agent.
func TestInputIsTheAgents(t *testing.T) {
	backend := acting{done: make(chan control.InputRequest, 1)}
	req := control.InputRequest{Epoch: 7, Actions: action.List{
		action.Type{Text: "ä€漢🙂\n"}, action.Click{Point: action.Point{X: 3, Y: 4}, Count: 2, Modifiers: "ctrl"},
	}}
	for _, role := range []screen.Role{screen.RoleOperator, screen.RoleControl, screen.RoleViewer} {
		if _, err := open(t, backend, role).Input(t.Context(), req); control.KindOf(err) != control.Forbidden {
			t.Errorf("%s: %v", role, err)
		}
	}
	answer, err := open(t, backend, screen.RoleAgent).Input(t.Context(), req)
	if err != nil || answer != (control.InputAnswer{Epoch: 7, Done: 2}) {
		t.Fatalf("%+v, %v", answer, err)
	}
	got := <-backend.done
	if got.Epoch != 7 || len(got.Actions) != 2 || got.Actions[0] != req.Actions[0] || got.Actions[1] != req.Actions[1] {
		t.Errorf("it got %+v", got)
	}
}

// X34: a body over 1 MiB, and one that says what no action knows, are refused whole.
func TestX34InputBody(t *testing.T) {
	backend := acting{done: make(chan control.InputRequest, 1)}
	_, path := openSocket(t, backend, screen.RoleAgent)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return control.Unix(path)(ctx) }}
	defer transport.CloseIdleConnections()
	for name, tc := range map[string]struct{ body, says string }{
		"too long":       {`{"epoch":1,"actions":[{"action":"type","text":"` + strings.Repeat("x", 2<<20) + `"}]}`, "larger than"},
		"unknown action": {`{"epoch":1,"actions":[{"action":"shout"}]}`, "is not one of"},
		"unknown field":  {`{"epoch":1,"actions":[{"action":"move","x":1,"y":1,"speed":3}]}`, "speed"},
		"unknown member": {`{"epoch":1,"force":true}`, "force"},
		"too many":       {`{"epoch":1,"actions":[` + strings.Repeat(`{},`, 2000) + `{}]}`, "more than"},
		"no object":      {`[]`, "cannot be read"},
	} {
		resp, err := (&http.Client{Transport: transport}).Post("http://botscreen/v1/input", "application/json", strings.NewReader(tc.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), tc.says) || len(text) > 4<<10 {
			t.Errorf("%s: %s %.300s", name, resp.Status, text)
		}
	}
	if len(backend.done) > 0 {
		t.Errorf("it did %+v", <-backend.done)
	}
}
