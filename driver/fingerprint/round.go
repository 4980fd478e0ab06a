// SPDX-License-Identifier: MPL-2.0

package fingerprint

import (
	"context"
	"fmt"

	"github.com/botscreen/botscreen/driver/requirements"
)

// source is something that is looked at. A look runs beside the watch, which alone touches the facts.
type source struct {
	look func(ctx context.Context) apply
	// late is applied when a look does not end in time.
	late apply
	// waiting is true from a look's start until its answer or its time limit, running until it has returned.
	waiting, running bool
	// again is true when another look was asked for while one was running.
	again bool
}

// apply writes an answer into the facts.
type apply func(*facts)

// answer is the end of a look, or of its time.
type answer struct {
	from  *source
	apply apply
	// returned is false when the look has run out of time and still runs.
	returned bool
}

// round is the sources of one watch and what they have said.
type round struct {
	sources []*source
	answers chan answer
	facts   facts
}

func newRound(f *Fingerprinter) *round {
	r := &round{answers: make(chan answer), facts: facts{reports: map[string]Report{}}}
	for _, p := range f.Probes {
		r.facts.reports[p.Kind()] = Report{Reason: probing}
		r.add(func(ctx context.Context) apply {
			report := p.Check(ctx)
			return func(f *facts) { f.reports[p.Kind()] = report }
		}, func(f *facts) {
			f.reports[p.Kind()] = Report{Reason: fmt.Sprintf("no answer within %s", checkLimit)}
		})
	}
	r.add(func(ctx context.Context) apply {
		missing := f.Requirements.Missing()
		return func(f *facts) { f.missing = missing }
	}, nil)
	r.add(func(ctx context.Context) apply {
		server, _ := f.Requirements.Xvnc(ctx)
		return func(f *facts) { f.xvnc = server.Version }
	}, nil)
	r.add(func(ctx context.Context) apply {
		browser, _ := f.Requirements.Browser(ctx)
		return func(f *facts) { f.browser = browser }
	}, nil)
	r.add(func(ctx context.Context) apply {
		check := f.Requirements.CheckUserNamespaces()
		return func(f *facts) { f.userns = check }
	}, nil)
	r.add(func(ctx context.Context) apply {
		free, err := f.Displays.FreeIn(f.Band)
		return func(f *facts) { f.setDisplays(free, err) }
	}, nil)
	r.add(func(ctx context.Context) apply {
		reading := f.Memory.Read(ctx)
		return func(f *facts) { f.setMemory(reading) }
	}, nil)
	return r
}

func (r *round) add(look func(context.Context) apply, late apply) {
	r.sources = append(r.sources, &source{look: look, late: late})
}

// start looks at everything, except at what the last look has not returned from: that one is looked at again
// when it has.
func (r *round) start(ctx context.Context) {
	for _, s := range r.sources {
		if s.running {
			s.again = true
			continue
		}
		r.look(ctx, s)
	}
}

func (r *round) look(ctx context.Context, s *source) {
	s.waiting, s.running, s.again = true, true, false
	go r.run(ctx, s)
}

// run takes one look and reports its end, and before that the end of its time if it does not keep to it.
func (r *round) run(ctx context.Context, s *source) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	done := make(chan apply, 1)
	go func() { done <- s.look(limited) }()
	select {
	case found := <-done:
		r.post(ctx, answer{s, found, true})
		return
	case <-limited.Done():
	}
	r.post(ctx, answer{from: s, apply: s.late})
	select {
	case <-done:
		// Found after its time, or because of its end: worth nothing.
		r.post(ctx, answer{from: s, returned: true})
	case <-ctx.Done():
	}
}

func (r *round) post(ctx context.Context, a answer) {
	select {
	case r.answers <- a:
	case <-ctx.Done():
	}
}

// take writes an answer into the facts and looks again where that was asked for meanwhile.
func (r *round) take(ctx context.Context, a answer) {
	if a.apply != nil {
		a.apply(&r.facts)
	}
	a.from.waiting = false
	if a.returned {
		a.from.running = false
		if a.from.again {
			r.look(ctx, a.from)
		}
	}
}

// pending reports whether an answer is still to come in time.
func (r *round) pending() bool {
	for _, s := range r.sources {
		if s.waiting {
			return true
		}
	}
	return false
}

// probing is the reason of an isolation that has not answered yet.
const probing = "probing"

// NewHostProbe is the probe of the raw host: allowed says what the plugin's allow_unsandboxed_host says.
func NewHostProbe(host requirements.Host, allowed bool) Probe { return hostProbe{host, allowed} }

type hostProbe struct {
	host    requirements.Host
	allowed bool
}

func (hostProbe) Kind() string { return Host }

func (p hostProbe) Check(ctx context.Context) Report {
	if !p.allowed {
		return Report{Reason: "not allowed on this node: set `allow_unsandboxed_host = true` in the plugin's config to allow it"}
	}
	if missing := p.host.Missing(); len(missing.Required()) > 0 {
		return Report{Reason: missing.Sentence()}
	}
	server, err := p.host.Xvnc(ctx)
	if err == nil {
		err = server.Supported()
	}
	if err != nil {
		return Report{Reason: err.Error()}
	}
	return Report{Ready: true}
}
