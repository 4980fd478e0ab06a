// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"net/http"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

func take(b LeaseChanger) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.TakeRequest
		err := decode(w, r, &req)
		if err == nil {
			req.Viewer, err = viewerOf(caller, req.Viewer)
		}
		if err != nil {
			return nil, err
		}
		return b.Take(r.Context(), caller, req)
	}
}

func release(b LeaseChanger) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.ReleaseRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		if req.Force {
			if caller.Role != screen.RoleOperator {
				return nil, &control.Error{Kind: control.Forbidden,
					Message: "Only an operator may take a screen from the person who controls it.",
					Next:    "Ask an operator for `botscreen release --force`."}
			}
			return b.Release(r.Context(), caller, req)
		}
		viewer, err := viewerOf(caller, req.Viewer)
		if err != nil {
			return nil, err
		}
		req.Viewer = viewer
		return b.Release(r.Context(), caller, req)
	}
}

// viewerOf is whom a caller acts for. A viewer's door was opened for one viewer, and
// acts for no other.
func viewerOf(caller Caller, claimed lease.ViewerID) (lease.ViewerID, error) {
	if caller.Role == screen.RoleViewer && claimed != "" && claimed != caller.Viewer {
		return "", &control.Error{Kind: control.Forbidden, Message: "This door was opened for another viewer."}
	}
	if claimed == "" {
		claimed = caller.Viewer
	}
	if !claimed.Valid() {
		return "", control.FromLease(lease.ErrViewerID)
	}
	return claimed, nil
}
