// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

func (e *everything) Take(_ context.Context, caller Caller, req control.TakeRequest) (lease.Public, error) {
	e.record(caller)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.acted = append(e.acted, req.Viewer)
	return lease.Public{Holder: lease.Human, Viewer: req.Viewer.Handle(), Reason: req.Reason, Epoch: 10}, nil
}

func (e *everything) Release(_ context.Context, caller Caller, req control.ReleaseRequest) (lease.Public, error) {
	e.record(caller)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.acted = append(e.acted, req.Viewer)
	return lease.Public{Holder: lease.Agent, Epoch: 11}, nil
}

// openAs serves backend on connections of one caller.
func openAs(t *testing.T, backend Backend, caller Caller) *control.Client {
	t.Helper()
	s := New(backend, slog.New(slog.DiscardHandler))
	c := control.NewClient(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go s.ServeConn(far, caller)
		return near, nil
	})
	t.Cleanup(func() {
		c.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return c
}

// A viewer's door acts for its viewer, others for whom they name, and nobody but the
// operator forces.
func TestTakeAndRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		caller  Caller
		claimed lease.ViewerID
		force   bool
		want    lease.ViewerID
		kind    control.Kind
	}{
		"operator names":        {caller: Caller{Role: screen.RoleOperator}, claimed: "ann", want: "ann"},
		"operator names nobody": {caller: Caller{Role: screen.RoleOperator}, kind: control.BadRequest},
		"not printable":         {caller: Caller{Role: screen.RoleOperator}, claimed: "a\x1b", kind: control.BadRequest},
		"control names":         {caller: Caller{Role: screen.RoleControl, Viewer: "bob"}, claimed: "ann", want: "ann"},
		"control by its stream": {caller: Caller{Role: screen.RoleControl, Viewer: "bob"}, want: "bob"},
		"viewer":                {caller: Caller{Role: screen.RoleViewer, Viewer: "bob"}, want: "bob"},
		"viewer repeats itself": {caller: Caller{Role: screen.RoleViewer, Viewer: "bob"}, claimed: "bob", want: "bob"},
		"viewer for another":    {caller: Caller{Role: screen.RoleViewer, Viewer: "bob"}, claimed: "ann", kind: control.Forbidden},
		"viewer without an id":  {caller: Caller{Role: screen.RoleViewer}, claimed: "ann", kind: control.Forbidden},
		"agent":                 {caller: Caller{Role: screen.RoleAgent}, claimed: "ann", kind: control.Forbidden},
		"forced by operator":    {caller: Caller{Role: screen.RoleOperator}, force: true},
		"forced by control":     {caller: Caller{Role: screen.RoleControl, Viewer: "bob"}, force: true, kind: control.Forbidden},
		"forced by viewer":      {caller: Caller{Role: screen.RoleViewer, Viewer: "bob"}, force: true, kind: control.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			backend := newEverything()
			c := openAs(t, backend, tc.caller)
			if !tc.force {
				got, err := c.Take(t.Context(), control.TakeRequest{Viewer: tc.claimed, Reason: screen.Distrust("a \x1b captcha")})
				if control.KindOf(err) != tc.kind || tc.kind == "" && err != nil {
					t.Fatalf("take: %v, want %q", err, tc.kind)
				}
				if err == nil && (got.Epoch != 10 || got.Viewer != tc.want.Handle() || got.Reason.String() != "a · captcha") {
					t.Errorf("take: %+v", got)
				}
			}
			got, err := c.Release(t.Context(), control.ReleaseRequest{Viewer: tc.claimed, Force: tc.force})
			if control.KindOf(err) != tc.kind || tc.kind == "" && err != nil {
				t.Fatalf("release: %v, want %q", err, tc.kind)
			}
			if err == nil && (got.Epoch != 11 || got.Holder != lease.Agent) {
				t.Errorf("release: %+v", got)
			}
			if slices.ContainsFunc(backend.acted, func(v lease.ViewerID) bool { return v != tc.want }) || (len(backend.acted) == 0) != (tc.kind != "") {
				t.Errorf("%d calls reached the supervisor", len(backend.acted))
			}
		})
	}
}
