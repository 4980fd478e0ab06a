// SPDX-License-Identifier: MPL-2.0

// Package fingerprint says what this node can run, and for everything that it cannot, why not: to Nomad as
// attributes and health, to an administrator as a diagnosis.
package fingerprint

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/requirements"
)

// The isolations, as jobs write them.
const (
	Host      = "host"
	Docker    = "docker"
	Apptainer = "apptainer"
)

// Probe tells whether one isolation works here. Its package makes one and the caller registers it.
type Probe interface {
	// Kind is host, docker or apptainer.
	Kind() string
	// Check looks now. It should end with ctx; one that does not is reported as hanging and not started again
	// before it has returned.
	Check(ctx context.Context) Report
}

// Report is what a probe found.
type Report struct {
	Ready bool
	// Reason says why it is not ready, in words that name the option or the step that would change it.
	Reason string
	// Version is the engine's, if it has one and said it.
	Version string
}

// Health is Nomad's word for whether jobs may be placed here.
type Health string

const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
)

// Value is an attribute's value: a string, or an integer when Numeric.
type Value struct {
	Text    string
	Int     int64
	Numeric bool
}

func text(s string) Value   { return Value{Text: s} }
func number(n int64) Value  { return Value{Int: n, Numeric: true} }
func (v Value) empty() bool { return v == Value{} }

// Snapshot is the node at one moment.
type Snapshot struct {
	Health Health
	// Description always says why something is off, also when the node is healthy.
	Description string
	// Attributes have full names, "driver.botscreen.…". Every snapshot has all of them: Nomad keeps an attribute
	// that is left out and removes one that is an empty string.
	Attributes map[string]Value
}

func (s Snapshot) equal(o Snapshot) bool {
	return s.Health == o.Health && s.Description == o.Description && maps.Equal(s.Attributes, o.Attributes)
}

const (
	// DefaultPeriod is how often everything is looked at again.
	DefaultPeriod = 30 * time.Second
	// checkLimit is what one probe may take.
	checkLimit = 10 * time.Second
	// settle is how long a round waits for its slower probes before it answers without them; the first answer
	// has to come within a second.
	settle = 800 * time.Millisecond
)

// Fingerprinter watches a node. Its fields are set before the first call and not changed after.
type Fingerprinter struct {
	// Version is the plugin's.
	Version string
	// Probes are those of the isolations that the plugin has.
	Probes []Probe
	// Order is the plugin's isolation_order; isolations that are not in it are listed last.
	Order []string
	// Requirements is where programs are looked for.
	Requirements requirements.Host
	// Displays and Band are where free display numbers are counted.
	Displays display.Host
	Band     display.Band
	// Memory says how much is available.
	Memory memory.Prober
	// Period is how often everything is looked at again; 0 means DefaultPeriod.
	Period time.Duration

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by Changed; guarded by mu
}

// Changed says that something may be different now, so that watchers look at once: a screen started or ended.
func (f *Fingerprinter) Changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (f *Fingerprinter) nextChange() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// Watch calls send with a snapshot within a second, also when a probe hangs (its isolation then reads "probing"),
// and with another one whenever a look, every Period or after Changed, finds something different. It returns what
// send returns, if that is an error, or the context's cause.
func (f *Fingerprinter) Watch(ctx context.Context, send func(Snapshot) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	period := f.Period
	if period == 0 {
		period = DefaultPeriod
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	changed := f.nextChange()
	r := newRound(f)
	r.start(ctx)
	settling := true
	var last *Snapshot
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			r.start(ctx)
			settling = true
			settled.Reset(settle)
			continue
		case <-changed:
			changed = f.nextChange()
			r.start(ctx)
			settling = true
			settled.Reset(settle)
			continue
		case <-settled.C:
		case a := <-r.answers:
			r.take(ctx, a)
			// Several answers of one round make one snapshot.
			if settling && r.pending() {
				continue
			}
		}
		settling = false
		now := r.facts.snapshot(f)
		if last != nil && now.equal(*last) {
			continue
		}
		if err := send(now); err != nil {
			return err
		}
		last = &now
	}
}
