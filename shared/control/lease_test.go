// SPDX-License-Identifier: MPL-2.0

package control

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

func TestFromLease(t *testing.T) {
	since := time.Date(2026, 5, 1, 14, 3, 10, 0, time.UTC)
	held := lease.Public{Holder: lease.Human, Viewer: "3f9a00000000", Since: since, Epoch: 41}
	lost := lease.Public{Holder: lease.Human, Since: since, Epoch: 41, Reason: screen.Distrust("lease.json: is no lease")}
	for _, tc := range []struct {
		err  error
		kind Kind
		want string
	}{
		{&lease.HeldError{Lease: held}, HumanHasControl, "since 2026-05-01 14:03:10 UTC."},
		{fmt.Errorf("click: %w", &lease.HeldError{Lease: held, Left: true}), HumanHasControl, "left without handing it back"},
		{&lease.HeldError{Lease: lost}, HumanHasControl, "lease.json: is no lease"},
		{&lease.ChangedError{Seen: 4, Now: 6}, LeaseChanged, "changed hands"},
		{&lease.ChangedError{Now: 6}, BadRequest, "needs the epoch"},
		{&lease.AskedError{Until: since}, Busy, "14:03:10 UTC to refuse"},
		{lease.ErrViewerID, BadRequest, "printable ASCII"},
	} {
		e := FromLease(tc.err)
		if e == nil || e.Kind != tc.kind || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%v: %+v", tc.err, e)
		}
	}
	if e := FromLease(&lease.HeldError{Lease: held}); e.Holder != lease.Human || e.Epoch != 41 || !e.Since.Equal(since) {
		t.Errorf("%+v", e)
	}
	if FromLease(io.EOF) != nil || FromLease(nil) != nil || FromLease(&lease.StoreError{Err: io.EOF}) != nil {
		t.Error("what is no refusal is one")
	}
}

// L11: a stop is refused as held, and says how it goes all the same.
func TestL11StopRefusal(t *testing.T) {
	held := &lease.HeldError{Lease: lease.Public{Holder: lease.Human, Viewer: "3f9a00000000", Epoch: 41}}
	if e := FromHeldStop(held); e == nil || e.Kind != Held || e.Epoch != 41 || !strings.Contains(e.Next, "stop --force") {
		t.Errorf("%+v", e)
	}
	if e := FromHeldStop(io.EOF); e != nil {
		t.Errorf("what is no refusal is one: %+v", e)
	}
}
