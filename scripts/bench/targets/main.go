// SPDX-License-Identifier: MPL-2.0

// Command targets measures the project's performance targets beside their references in
// one run, prints them as ratios, and writes docs/benchmarks/latest.json. It runs as
// root, from the repository's root, on the built binaries of bin/.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one target's outcome; docs/benchmarks/latest.json is a list of them.
type row struct {
	Name      string  `json:"name"`
	Target    int     `json:"target"` // its number in the list of targets
	Ours      float64 `json:"ours"`   // median
	Reference float64 `json:"reference"`
	Ratio     float64 `json:"ratio"`
	Unit      string  `json:"unit"`
	Goal      float64 `json:"goal"` // the ratio may be at most this
	Met       bool    `json:"met"`
	Runs      int     `json:"runs"`
	Load      string  `json:"load"`               // of the machine over 1, 5 and 15 minutes, at the end
	Recorded  bool    `json:"recorded,omitempty"` // the reference was not here and is the recorded figure
}

// newRow compares medians.
func newRow(target int, name, unit string, ours, reference []float64, goal float64) row {
	r := row{Name: name, Target: target, Unit: unit, Ours: median(ours), Reference: median(reference), Goal: goal, Runs: len(ours)}
	r.Ratio = r.Ours / r.Reference
	r.Met = r.Ratio <= goal
	return r
}

// paired compares run by run and takes the median ratio: what a busy machine does to one
// run it does to its pair too.
func paired(target int, name, unit string, ours, reference []float64, goal float64) row {
	r := newRow(target, name, unit, ours, reference, goal)
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / reference[i]
	}
	r.Ratio = median(ratios)
	r.Met = r.Ratio <= goal
	return r
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func main() {
	runs := flag.Int("n", 9, "runs of each start")
	out := flag.String("o", "docs/benchmarks/latest.json", "where the results are written")
	flag.Parse()
	if err := run(*runs, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(runs int, out string) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.close()
	starts, err := b.starts(runs)
	if err != nil {
		return err
	}
	plugin, err := b.plugin(runs)
	if err != nil {
		return err
	}
	rows := append(starts, plugin...)
	load := loadAverage()
	for i := range rows {
		rows[i].Load = load
	}
	print(rows)
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "target\tfigure\tours\treference\tunit\tratio\tgoal\t")
	for _, r := range rows {
		verdict := "met"
		if !r.Met {
			verdict = "MISSED"
		}
		reference := fmt.Sprintf("%.4g", r.Reference)
		if r.Recorded {
			reference += " (recorded)"
		}
		fmt.Fprintf(w, "%d\t%s\t%.4g\t%s\t%s\t%.2f\t<= %.2f\t%s\n", r.Target, r.Name, r.Ours, reference, r.Unit, r.Ratio, r.Goal, verdict)
	}
	_ = w.Flush()
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
