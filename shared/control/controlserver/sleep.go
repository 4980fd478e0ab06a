// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"net/http"
)

// Sleeper serves POST sleep and POST wake.
type Sleeper interface {
	// Sleep ends the desktop's processes until the next use. It refuses while somebody
	// uses the screen.
	Sleep(ctx context.Context, caller Caller) error
	// Wake returns when the desktop is ready.
	Wake(ctx context.Context, caller Caller) error
}

func bare(do func(context.Context, Caller) error) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		if err := decode(w, r, &struct{}{}); err != nil {
			return nil, err
		}
		return struct{}{}, do(r.Context(), caller)
	}
}
