// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// nomadOnly are those that the embedded agent has no calls for.
var nomadOnly = []acceptance{
	{"a drain while a person holds", drained},
}

// drained takes a screen and drains its node: the drain is not held up, and the person still
// holds when the screen comes back, under no lower an epoch (L11).
func drained(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "drained"))
	defer a.botscreen(t, "stop", "--force", "drained")
	mine := leaseBy(t, a, "take", "drained", "--reason", "a captcha")
	nodes, _, err := a.client().Nodes().List(nil)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	node := nodes[0].ID
	drain := func(spec *api.DrainSpec, eligible bool) {
		t.Helper()
		if _, err := a.client().Nodes().UpdateDrain(node, spec, eligible, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := a.onlyAlloc(t, "drained")
	drain(&api.DrainSpec{Deadline: time.Minute}, false)
	defer drain(nil, true) // whatever happens, the next test needs the node
	a.eventually("the end of the drained allocation", func() bool { return a.allocStatus(t, before) == "complete" })
	gone(t, a)
	drain(nil, true)
	a.eventually("the screen on the node that is back", func() bool {
		r := a.botscreen(t, "status", "drained", "--json")
		var s screenStatus
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &s) == nil && s.Supervisor != nil && s.Supervisor.State == "ready"
	})
	if l := leaseBy(t, a, "lease", "drained"); l.Holder != "human" || !l.You || l.Epoch < mine.Epoch {
		t.Errorf("%+v became %+v", mine, l)
	}
	agentRefused(t, a, "drained")
	if l := leaseBy(t, a, "release", "drained"); l.Holder != "agent" || l.Epoch <= mine.Epoch {
		t.Errorf("handed back: %+v", l)
	}
	screenshot(t, a, "drained")
}
