// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"net/http"

	"github.com/botscreen/botscreen/shared/control"
)

func (s *Server) input(b Actor) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.InputRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		leave, err := s.limits.inputs.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return b.Input(r.Context(), caller, req)
	}
}
