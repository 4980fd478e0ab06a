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
	calls[control.CallSetClipboard] = sending(s.limits.desks, func(ctx context.Context, caller Caller, req control.ClipboardRequest) (struct{}, error) {
		return struct{}{}, b.SetClipboard(ctx, caller, req)
	})
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

// sending is asking with a request.
func sending[Request, Answer any](limit limit, do func(context.Context, Caller, Request) (Answer, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req Request
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		leave, err := limit.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return do(r.Context(), caller, req)
	}
}
