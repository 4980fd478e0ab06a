// SPDX-License-Identifier: MPL-2.0

package task

import (
	"strings"
	"testing"
)

// Issue 7: pressure is in the events, once until it is over, and so is what the kernel ended.
func TestMemoryWatch(t *testing.T) {
	const mb = 1 << 20
	w := memoryWatch{kills: 2}
	for i, step := range []struct {
		sample memorySample
		want   string // a part of the one message; empty: none
	}{
		{memorySample{kills: 2, used: 100 * mb, limit: 1000 * mb}, ""},
		{memorySample{kills: 2, used: 950 * mb, limit: 1000 * mb}, "Memory is getting short: 950 of the task's 1000 MB"},
		{memorySample{kills: 2, used: 990 * mb, limit: 1000 * mb}, ""},
		{memorySample{kills: 3, used: 800 * mb, limit: 1000 * mb}, "ended 1 process of the screen, which goes on; the task's limit is 1000 MB"},
		{memorySample{kills: 3, used: 950 * mb, limit: 1000 * mb}, ""}, // it never was over
		{memorySample{kills: 3, used: 700 * mb, limit: 1000 * mb}, ""},
		{memorySample{kills: 3, used: 900 * mb, limit: 1000 * mb}, "Memory is getting short"},
		{memorySample{kills: 8, used: 5000 * mb}, "ended 5 processes of the screen, which goes on; the node itself has too little"},
		{memorySample{kills: 8, stallWhole: 40}, "in 40 % of the last ten seconds"},
		{memorySample{kills: 8, stallWhole: 5}, ""},
		{memorySample{kills: 8, stallWhole: 50}, ""},
		{memorySample{kills: 8}, ""},
		{memorySample{kills: 8, stallWhole: 10}, "in 10 %"},
	} {
		got := w.look(step.sample)
		if step.want == "" && len(got) > 0 || step.want != "" && (len(got) != 1 || !strings.Contains(got[0], step.want)) {
			t.Errorf("look %d says %q, want %q", i+1, got, step.want)
		}
	}
}
