// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
)

// report is which acceptance test ran against which agent; TestMain prints it.
var report struct {
	sync.Mutex
	rows     []string // tests in the order they ran
	variants []string
	cells    map[[2]string]string
}

// record notes the outcome of a test against an agent when it is over.
func record(t *testing.T, test, variant string) {
	t.Helper()
	t.Cleanup(func() {
		outcome := "ok"
		switch {
		case t.Skipped():
			outcome = "skipped"
		case t.Failed():
			outcome = "FAILED"
		}
		note(test, variant, outcome)
	})
}

func note(test, variant, outcome string) {
	report.Lock()
	defer report.Unlock()
	if report.cells == nil {
		report.cells = map[[2]string]string{}
	}
	if !slices.Contains(report.rows, test) {
		report.rows = append(report.rows, test)
	}
	if !slices.Contains(report.variants, variant) {
		report.variants = append(report.variants, variant)
	}
	report.cells[[2]string{test, variant}] = outcome
}

func printReport() {
	report.Lock()
	defer report.Unlock()
	if len(report.rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nacceptance test")
	for _, v := range report.variants {
		fmt.Fprintf(w, "\t%s", v)
	}
	fmt.Fprintln(w)
	for _, r := range report.rows {
		fmt.Fprint(w, r)
		for _, v := range report.variants {
			outcome, ran := report.cells[[2]string{r, v}]
			if !ran {
				outcome = "-"
			}
			fmt.Fprintf(w, "\t%s", outcome)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}
