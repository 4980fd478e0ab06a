// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X2: what the self-test found is told once, and only for a screen that was called ready
// before it was known; a ready event carries what is known already.
func TestX2FenceIsTold(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer dir.Close()
	s, err := newSupervisor(Config{}, dir, hclog.NewNullLogger())
	must(t, err)
	s.onFence(control.Fence{Mode: control.Advisory, Reason: "early"})
	if events, _ := s.journal.after(0); len(events) != 0 {
		t.Fatalf("events before ready: %v", events)
	}
	s.state = screen.Ready
	for range 2 {
		s.onFence(control.Fence{Mode: control.Enforced})
	}
	events, _ := s.journal.after(0)
	if len(events) != 1 || events[0].Name != control.EventFence || events[0].Fence != control.Enforced {
		t.Fatalf("events %+v", events)
	}
}
