// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// summarize prints min/median/max of each subject and, paired run by run, the
// ratio to the first.
func summarize(w io.Writer, subjects []string, all map[string][]sample) error {
	for _, subject := range subjects {
		var ready, cpu, ratio []float64
		for i, s := range all[subject] {
			ready, cpu = append(ready, s.Ready), append(cpu, s.CPU)
			ratio = append(ratio, s.Ready/all[subjects[0]][i].Ready)
		}
		_, err := fmt.Fprintf(w, "%-12s ready %s ms  cpu %s ms  %s × %s\n", filepath.Base(subject),
			spread(ready, "%.0f"), spread(cpu, "%.0f"), spread(ratio, "%.2f"), filepath.Base(subjects[0]))
		if err != nil {
			return err
		}
	}
	return nil
}

func spread(values []float64, format string) string {
	slices.Sort(values)
	return fmt.Sprintf(format+"/"+format+"/"+format, values[0], values[len(values)/2], values[len(values)-1])
}
