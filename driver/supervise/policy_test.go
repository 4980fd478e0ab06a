// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// L5: with consent in the job, a holder who is there is asked before another person gets
// the screen.
func TestL5ConsentOfTheJob(t *testing.T) {
	r, _ := newViewableWith(t, func(c *Config) { c.Takeover.Consent = true })
	ann, err := r.view(control.Hello{Viewer: "ann", Mode: control.Control})
	must(t, err)
	ann.send()
	r.take("ann")
	if _, err := r.client.Take(t.Context(), control.TakeRequest{Viewer: "bob"}); !isKind(err, control.Busy) {
		t.Errorf("bob took the screen without asking: %v", err)
	}
	if held := r.leaseNow(); held.Viewer != lease.ViewerID("ann").Handle() {
		t.Errorf("the lease is %+v", held)
	}
}

// The job's watch policy: while a person holds, the others' streams end.
func TestWatchOfTheJob(t *testing.T) {
	r, _ := newViewableWith(t, func(c *Config) { c.Takeover.Watch = screen.WatchHolder })
	bob, err := r.view(control.Hello{Viewer: "bob", Mode: control.Watch})
	must(t, err)
	bob.send()
	r.take("ann")
	if _, err := bob.Screenshot(t.Context()); err == nil {
		t.Error("bob still sees the screen")
	}
	ann, err := r.view(control.Hello{Viewer: "ann", Mode: control.Watch})
	must(t, err)
	ann.send()
}

// L10: with away_limit in the job, a holder who vanished loses the screen after the grace
// and that time, also where the supervisor was replaced meanwhile.
func TestL10AwayLimitOfTheJob(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Millisecond} {
		r := newRig(t, nil)
		r.take("ann")
		r.end()
		path := filepath.Join(r.dir, leaseName)
		text, err := os.ReadFile(path)
		must(t, err)
		var record map[string]any
		must(t, json.Unmarshal(text, &record))
		record["away_since"] = time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
		text, err = json.Marshal(record)
		must(t, err)
		must(t, os.WriteFile(path, text, 0o600))
		next := r.nextRun(func(c *Config) { c.Takeover.AwayLimit = limit })
		if limit > 0 {
			next.await("the agent has it again", func() bool { return next.leaseNow().Holder == lease.Agent })
		} else if held := next.leaseNow(); held.Holder != lease.Human {
			t.Errorf("without a limit the lease is %+v", held)
		}
	}
}
