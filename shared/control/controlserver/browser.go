// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"net/http"

	"github.com/botscreen/botscreen/shared/control"
)

func (s *Server) openBrowser(b Opener) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.BrowserRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		leave, err := s.limits.desks.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return b.OpenBrowser(r.Context(), caller, req)
	}
}
