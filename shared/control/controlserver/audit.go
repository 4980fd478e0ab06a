// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// Auditor serves GET audit.
type Auditor interface {
	// Audit returns the screen's audit file and the line it must reach.
	Audit(ctx context.Context) (text []byte, head string, err error)
}

func auditFile(b Auditor) handler {
	return func(w http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
		text, head, err := b.Audit(r.Context())
		if err != nil {
			return nil, err
		}
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set(control.HeaderAuditHead, head)
		w.Write(text) // the caller left when this fails
		return written{}, nil
	}
}
