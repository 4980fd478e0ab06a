// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

const (
	asksName = "asks.json"
	maxAsks  = 64 << 10 // bytes of the file
)

// asksRecord is what the next supervisor of the same run must know of the agent's asks.
type asksRecord struct {
	V        int          `json:"v"`
	Instance string       `json:"instance"`
	Asks     []wishRecord `json:"asks"`
}

type wishRecord struct {
	Ask   control.Ask      `json:"ask"`
	State control.AskState `json:"state"`
	Taken time.Time        `json:"taken,omitzero"`
	Held  time.Duration    `json:"held_ns,omitempty"`
}

// load takes up what the last supervisor of this run kept. The lease tells what happened
// in between: a person who has it came, and one who had it handed back.
func (a *asks) load(dir *os.Root, instance string, held lease.Lease, now time.Time) error {
	f, err := dir.Open(asksName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load asks: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAsks))
	var r asksRecord
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return fmt.Errorf("load asks: %w", err)
	}
	if r.V != recordVersion || r.Instance != instance {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range r.Asks[max(0, len(r.Asks)-control.MaxAsksPerHour):] {
		a.all = append(a.all, &wish{Ask: w.Ask, state: w.State, taken: w.Taken, held: w.Held})
	}
	a.expire(now)
	for _, w := range a.all {
		switch {
		case w.state == control.AskOpen && held.Held():
			w.state, w.taken = control.AskTaken, held.Since
		case w.state == control.AskTaken && !held.Held():
			w.state, w.held = control.AskHandedBack, max(0, held.Since.Sub(w.taken))
		}
	}
	return nil
}

// record is what load reads.
func (a *asks) record(instance string) asksRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := asksRecord{V: recordVersion, Instance: instance}
	for _, w := range a.all {
		r.Asks = append(r.Asks, wishRecord{Ask: w.Ask, State: w.state, Taken: w.taken, Held: w.held})
	}
	return r
}

// saveAsks keeps the asks for the next supervisor; the newest state lands last.
func (s *supervisor) saveAsks() {
	s.saving.Lock()
	defer s.saving.Unlock()
	text, err := json.Marshal(s.asks.record(s.config.Instance))
	if err == nil {
		err = replaceFile(s.dir, asksName, text)
	}
	if err != nil {
		s.log.Error("cannot keep what the agent asks for", "error", err)
	}
}
