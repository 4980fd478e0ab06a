// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

func (e *everything) Ask(_ context.Context, caller Caller, req control.AskRequest) (control.Ask, error) {
	e.record(caller)
	return control.Ask{ID: "a1", Reason: screen.Distrust(req.Reason), Deadline: req.Deadline}, nil
}

func (e *everything) AwaitAsk(_ context.Context, id string, wait time.Duration) (control.AskOutcome, error) {
	return control.AskOutcome{Ask: control.Ask{ID: id}, State: control.AskHandedBack, Held: wait}, nil
}

// L13: an ask and what became of it travel whole.
func TestL13Asks(t *testing.T) {
	_, path := openSocket(t, newEverything(), screen.RoleAgent)
	c := control.NewClient(control.Unix(path))
	defer c.Close()
	deadline := time.Date(2026, 5, 1, 14, 3, 10, 0, time.UTC)
	asked, err := c.Ask(t.Context(), control.AskRequest{Reason: "a captcha", Deadline: deadline})
	if err != nil || asked.ID != "a1" || asked.Reason.String() != "a captcha" || !asked.Deadline.Equal(deadline) {
		t.Errorf("%+v, %v", asked, err)
	}
	outcome, err := c.AwaitAsk(t.Context(), "a1", 3*time.Second)
	if err != nil || outcome.ID != "a1" || outcome.State != control.AskHandedBack || outcome.Held != 3*time.Second || !outcome.State.Over() {
		t.Errorf("%+v, %v", outcome, err)
	}
	for _, wait := range []string{"x", "-1s", "6m", "1"} {
		if status, refusal := ask(t, path, http.MethodGet, "/v1/asks/a1?wait="+wait, nil, nil); status != http.StatusBadRequest || refusal.Kind != control.BadRequest {
			t.Errorf("wait=%s: %d %+v", wait, status, refusal)
		}
	}
}
