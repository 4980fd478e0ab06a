// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// X44: what a person is told of, and what is the consequence of their own doing.
func TestX44FocusWatch(t *testing.T) {
	type look struct {
		at, steered time.Duration // since the takeover; negative: before it
		focus       dialhome.Focus
		grabs       bool
		stolen      bool
		grabbed     bool
	}
	const half = 500 * time.Millisecond
	field, thief := dialhome.Focus{Client: 1}, dialhome.Focus{Client: 2}
	grabbed, free := dialhome.Focus{Client: 1, Grabbed: true}, field
	for name, looks := range map[string][]look{
		"who has it at the takeover": {{at: half, steered: -time.Hour, focus: field}},
		"a thief": {
			{at: half, steered: -time.Hour, focus: field},
			{at: 2 * half, steered: -time.Hour, focus: thief, stolen: true},
			{at: 3 * half, steered: -time.Hour, focus: thief},
		},
		"a thief while nothing has it between": {
			{at: half, steered: -time.Hour, focus: field},
			{at: 2 * half, steered: -time.Hour},
			{at: 3 * half, steered: -time.Hour, focus: thief, stolen: true},
		},
		"the person's click": {
			{at: half, steered: -time.Hour, focus: field},
			{at: 2 * half, steered: 2*half - 1, focus: thief},
		},
		"a program that takes a moment to open": {
			{at: 4 * half, steered: -time.Hour, focus: field},
			{at: 6 * half, steered: 4*half - 1, focus: thief},
		},
		"long after the person's click": {
			{at: half, steered: half, focus: field},
			{at: 4 * half, steered: half, focus: field},
			{at: 5 * half, steered: half, focus: thief, stolen: true},
		},
		"a grab from before": {
			{at: half, steered: -time.Hour, focus: grabbed, grabs: true, grabbed: true},
			{at: 2 * half, steered: -time.Hour, focus: grabbed, grabs: true},
			{at: 3 * half, steered: -time.Hour, focus: free, grabs: true},
			{at: 4 * half, steered: -time.Hour, focus: grabbed, grabs: true, grabbed: true},
		},
		"a menu that the person opened": {
			{at: half, steered: -time.Hour, focus: free, grabs: true},
			{at: 2 * half, steered: half + 1, focus: grabbed, grabs: true},
		},
		"a grab that was not looked for": {{at: half, steered: -time.Hour, focus: grabbed}},
	} {
		begin := time.Unix(1000000, 0)
		watch := focusWatch{looked: begin, free: begin}
		for i, l := range looks {
			stolen, grab := watch.look(begin.Add(l.at), begin.Add(l.steered), l.focus, l.grabs)
			if stolen != l.stolen || grab != l.grabbed {
				t.Errorf("%s, look %d: stolen %v, grabbed %v", name, i, stolen, grab)
			}
		}
	}
}
