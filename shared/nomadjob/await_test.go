// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"errors"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A screen that has ended since nobody used it did come up; one that ended otherwise did not.
func TestLookAtTheEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		alloc *api.AllocationListStub
		done  bool
	}{
		"idle":         {stub("j", "a", api.AllocClientStatusComplete, 1, event(1, "state", "ready"), event(2, "state", "stopped", "reason", "not used for 2s")), true},
		"stopped":      {stub("j", "a", api.AllocClientStatusComplete, 1, event(1, "state", "ready"), event(2, "state", "stopped")), false},
		"failed":       {stub("j", "a", api.AllocClientStatusFailed, 1, event(1, "state", "starting")), false},
		"its own word": {stub("j", "a", api.AllocClientStatusFailed, 1, event(1, "state", "stopped", "reason", "not used for 2s")), false},
	} {
		done, err := (&waiter{}).look(tc.alloc, Running)
		var failed *FailedError
		if done != tc.done || errors.As(err, &failed) == tc.done {
			t.Errorf("%s: done %t, %v", name, done, err)
		}
	}
}
