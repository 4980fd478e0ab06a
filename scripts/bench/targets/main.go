// SPDX-License-Identifier: MPL-2.0

// Command targets measures the project's performance targets beside their references in
// one run, prints them as ratios, and writes docs/benchmarks/latest.json. It runs as
// root, from the repository's root, on the built binaries of bin/.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	runs := flag.Int("n", 9, "runs of each start")
	out := flag.String("o", "docs/benchmarks/latest.json", "where the results are written")
	only := flag.String("part", "", "measure only this: starts, plugin, transport, gate, screen, sandboxes, wire, sleeper, browser, crowd or terraform; nothing is written then")
	flag.Parse()
	if err := run(*runs, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(runs int, out, only string) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.close()
	var rows []row
	var failed []error
	for _, part := range []struct {
		name    string
		measure func(runs int) ([]row, error)
	}{{"starts", b.starts}, {"plugin", b.plugin}, {"transport", b.transport}, {"gate", b.gate}, {"screen", b.screen}, {"sandboxes", b.sandboxes}, {"wire", b.wire},
		{"sleeper", b.sleeper}, {"browser", b.browser}, {"crowd", b.crowd}, {"terraform", b.terraform}} {
		if only != "" && only != part.name {
			continue
		}
		more, err := part.measure(runs)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
			continue // what the others found is shown all the same
		}
		load := loadAverage()
		for i := range more {
			more[i].Load = load
		}
		rows = append(rows, more...)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.Target - b.Target })
	print(rows)
	if only != "" || len(failed) > 0 {
		return errors.Join(failed...)
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "target\tfigure\tours min/median/max\treference\tunit\tratio\tgoal\tload\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Target, r.Name, r.Ours, r.reference(), r.Unit, r.ratio(), r.goal(), r.Load, r.verdict())
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
