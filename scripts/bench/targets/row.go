// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
)

// spread is what the runs found, smallest to largest.
type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]}
}

func (s spread) String() string {
	if s.Min == s.Max {
		return fmt.Sprintf("%.4g", s.Median)
	}
	return fmt.Sprintf("%.4g/%.4g/%.4g", s.Min, s.Median, s.Max)
}

func median(values []float64) float64 { return spreadOf(values).Median }

// row is one target's outcome; docs/benchmarks/latest.json is a list of them.
type row struct {
	Name      string  `json:"name"`
	Target    int     `json:"target"` // its number in the list of targets
	Ours      spread  `json:"ours"`
	Reference *spread `json:"reference,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"` // ours to the reference, by medians of pairs
	Unit      string  `json:"unit"`
	Rule      rule    `json:"rule,omitempty"` // empty: the row has no goal
	Goal      float64 `json:"goal,omitempty"`
	Met       bool    `json:"met"`
	Runs      int     `json:"runs"`
	Load      string  `json:"load"`               // of the machine over 1, 5 and 15 minutes, at the end
	Recorded  bool    `json:"recorded,omitempty"` // the reference was not here and is the recorded figure
}

// rule is what a goal bounds.
type rule string

const (
	ratioAtMost  rule = "ratio at most"
	ratioAtLeast rule = "ratio at least"
	oursAtMost   rule = "ours at most"
	oursAtLeast  rule = "ours at least"
)

// alone has no reference.
func alone(target int, name, unit string, ours []float64) row {
	return row{Name: name, Target: target, Unit: unit, Ours: spreadOf(ours), Runs: len(ours), Met: true}
}

// beside compares run by run and takes the median ratio: what a busy machine does to one
// run it does to its pair too.
func beside(target int, name, unit string, ours, reference []float64) row {
	r := alone(target, name, unit, ours)
	other := spreadOf(reference)
	r.Reference = &other
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / reference[i]
	}
	r.Ratio = median(ratios)
	return r
}

// besideRecorded compares with a figure that was taken once.
func besideRecorded(target int, name, unit string, ours []float64, reference float64) row {
	r := beside(target, name, unit, ours, slices.Repeat([]float64{reference}, len(ours)))
	r.Recorded = true
	return r
}

func (r row) atMost(goal float64) row  { return r.judged(ratioAtMost, goal, r.Ratio <= goal) }
func (r row) atLeast(goal float64) row { return r.judged(ratioAtLeast, goal, r.Ratio >= goal) }

// Goals of the median run itself.
func (r row) under(goal float64) row { return r.judged(oursAtMost, goal, r.Ours.Median <= goal) }
func (r row) over(goal float64) row  { return r.judged(oursAtLeast, goal, r.Ours.Median >= goal) }

func (r row) judged(by rule, goal float64, met bool) row {
	r.Rule, r.Goal, r.Met = by, goal, met
	return r
}

func (r row) reference() string {
	switch {
	case r.Reference == nil:
		return "-"
	case r.Recorded:
		return r.Reference.String() + " (recorded)"
	default:
		return r.Reference.String()
	}
}

func (r row) ratio() string {
	if r.Reference == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

func (r row) goal() string {
	switch r.Rule {
	case ratioAtMost, oursAtMost:
		return fmt.Sprintf("<= %g", r.Goal)
	case ratioAtLeast, oursAtLeast:
		return fmt.Sprintf(">= %g", r.Goal)
	default:
		return "-"
	}
}

func (r row) verdict() string {
	switch {
	case r.Rule == "":
		return ""
	case r.Met:
		return "met"
	default:
		return "MISSED"
	}
}
