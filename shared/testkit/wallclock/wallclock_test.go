// SPDX-License-Identifier: MPL-2.0

package wallclock

import (
	"testing"
	"time"
)

func TestJumped(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{8 * time.Hour, -time.Hour, 0} {
		jumped := Jumped(now, d)
		if jumped.Sub(now) != 0 || jumped.Round(0).Sub(now.Round(0)) != d {
			t.Errorf("jumped by %s: %s became %s", d, now, jumped)
		}
	}
}
