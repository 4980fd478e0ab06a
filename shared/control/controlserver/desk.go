// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"net/http"

	"github.com/botscreen/botscreen/shared/control"
)

// addDesk adds what agents ask of the desktop. Each costs work inside the screen, so few
// run at once.
func (s *Server) addDesk(calls map[control.Call]handler, b Desk) {
	calls[control.CallWindows] = asking(s.limits.desks, b.Windows)
	calls[control.CallCursor] = asking(s.limits.desks, b.Cursor)
	calls[control.CallReadClipboard] = asking(s.limits.desks, b.Clipboard)
	calls[control.CallSetClipboard] = func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.ClipboardRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		leave, err := s.limits.desks.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return struct{}{}, b.SetClipboard(r.Context(), caller, req)
	}
}

func asking[T any](limit limit, question func(context.Context, Caller) (T, error)) handler {
	return func(_ http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		leave, err := limit.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return question(r.Context(), caller)
	}
}
