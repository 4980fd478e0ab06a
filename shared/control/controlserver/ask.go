// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

func askPerson(b Asker) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.AskRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		return b.Ask(r.Context(), caller, req)
	}
}

func (s *Server) awaitAsk(b Asker) handler {
	return func(_ http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
		wait, err := parseAskWait(r.URL.Query().Get("wait"))
		if err != nil {
			return nil, err
		}
		leave, err := s.limits.asks.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return b.AwaitAsk(r.Context(), r.PathValue("id"), wait)
	}
}

func parseAskWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > control.MaxAskWait {
		return 0, &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("wait must be a duration from 0s to %s; it is %q.", control.MaxAskWait, text)}
	}
	return wait, nil
}
