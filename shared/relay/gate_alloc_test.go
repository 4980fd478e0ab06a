// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"image"
	"slices"
	"testing"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// watched is what a person's viewer sends while it watches, an encoding list included.
func watched() []byte {
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1440, 900)}.Append(nil)
	fence := rfb.FenceMessage{Flags: rfb.FenceBlockBefore, Payload: []byte{1}}.Append(nil)
	pointers := bytes.Repeat(pointerMessage(0, 3, 4), 20)
	return slices.Concat(everything, request, fence, pointers, keyMessage(true, 'a'), keyMessage(false, 'a'), request)
}

// Target 8: no message that a viewer sends costs an allocation; make bench measures how
// many pass.
func TestGateAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	v := w.newViewer(&streamLink{}, Admission{Grant: ticket.Grant{Viewer: "v", Mode: ticket.Watch}})
	v.upstream = &sink{}
	in := &inflow{viewer: v, ctx: t.Context(), watching: true}
	said := watched()
	allocs := testing.AllocsPerRun(100, func() {
		in.out = in.out[:0]
		if rest, bad, err := in.chew(said); len(rest) > 0 || bad != nil || err != nil {
			t.Fatalf("%d bytes are left, %v, %v", len(rest), bad, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
