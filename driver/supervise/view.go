// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// openRelay makes the relay of this supervisor's life. It connects to the screen when
// the first viewer comes; before the desktop is ready none is admitted.
func (s *supervisor) openRelay() {
	s.tickets = ticket.NewStore()
	s.relay = relay.New(relay.Options{
		Dial: s.dialViewer, Input: s.dialInput, Lease: s.keeper, Tickets: s.tickets, Name: string(s.config.Profile),
		MaxSize: rfb.Size{WidthPx: s.config.Takeover.MaxGeometry.WidthPx, HeightPx: s.config.Takeover.MaxGeometry.HeightPx},
		Hosts:   s.viewer.names,
		Watch:   s.config.Takeover.Watch, Layout: s.config.KeyboardLayout,
		Activity: s.touch, Log: slog.New(discardBelowError{s}), Paste: s.pasteByPolicy(), MayRelease: s.mayHandBack, EndProgram: s.endProgram, RenewPage: s.renewPage,
	})
}

// dialViewer connects a viewer to the screen, which may sleep.
func (s *supervisor) dialViewer(ctx context.Context) (net.Conn, error) {
	return s.dialAwake(ctx, dialhome.Dial{Compare: true})
}

// dialInput connects the relay's input to it.
func (s *supervisor) dialInput(ctx context.Context) (net.Conn, error) {
	return s.dialAwake(ctx, dialhome.Dial{})
}

func (s *supervisor) dialAwake(ctx context.Context, request dialhome.Dial) (net.Conn, error) {
	end, err := s.begin(ctx, "show the screen")
	if err != nil {
		return nil, err
	}
	defer end()
	return s.dialRFB(ctx, request)
}

// View admits a viewer to the relay. What it sends reaches the screen only while its id
// holds the lease, and never in mode watch. Its id is a claim: whoever comes this way may
// open shells as well, and taking the screen needs the id too (wire.md, section 2).
func (s *supervisor) View(ctx context.Context, caller controlserver.Caller, req control.ViewRequest) (func(context.Context, net.Conn), error) {
	grant := ticket.Grant{Mode: ticket.Mode(req.Mode), Viewer: caller.Viewer}
	if req.Mode == "" {
		grant.Mode = ticket.Watch
	}
	if grant.Viewer == "" && grant.Mode == ticket.Watch {
		grant.Viewer = lease.ViewerID(rand.Text())
	}
	switch {
	case !grant.Viewer.Valid():
		return nil, control.FromLease(lease.ErrViewerID)
	case grant.Mode == ticket.Control && s.config.Exec.Role == screen.RoleViewer:
		return nil, &control.Error{Kind: control.Forbidden,
			Message: `Cannot open a view that may send input: this screen allows only watching (exec { role = "viewer" }).`,
			Next:    "Watch it with `botscreen view --watch`."}
	}
	end, err := s.begin(ctx, "view the screen")
	if err != nil {
		return nil, err
	}
	end() // from here on the relay knows the viewer
	s.trail.came(grant.Viewer.Handle(), cameBy(caller))
	s.auditAct(audit.Viewed, cameBy(caller), grant.Viewer.Handle(), string(grant.Mode))
	if req.Web {
		return func(ctx context.Context, conn net.Conn) { s.relay.ServeWeb(ctx, conn, grant) }, nil
	}
	return func(ctx context.Context, conn net.Conn) {
		end := s.relay.ServeStream(ctx, conn, relay.Admission{Grant: grant})
		if end.Code == relay.Gone && end.Cause != nil { // its program just sees a closed connection
			s.log.Warn("a viewer was not served", "viewer", grant.Viewer.Handle(), "reason", screen.Distrust(end.String()).String())
		}
	}, nil
}

// viewers are those attached, as everybody may know them.
func (s *supervisor) viewers() []control.Viewer {
	var all []control.Viewer
	for _, v := range s.relay.Viewers() {
		all = append(all, control.Viewer{Viewer: v.Viewer, Mode: control.ViewMode(v.Mode), Since: v.Since, Holding: v.Holding})
	}
	return all
}
