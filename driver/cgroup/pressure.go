// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryStall is for how much of the last ten seconds no process of the group went on for
// want of memory, in per cent. Only the unified hierarchy counts it; 0 also where the kernel
// does not.
func (g *Group) MemoryStall() int {
	d := g.with("memory")
	if d == nil || !d.V2 {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "memory.pressure"))
	if err != nil {
		return 0
	}
	return parseFullStall(text)
}

// parseFullStall reads the second line of a pressure file, see the kernel's accounting/psi:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func parseFullStall(text []byte) int {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "full" {
			continue
		}
		share, err := strconv.ParseFloat(strings.TrimPrefix(fields[1], "avg10="), 64)
		if err != nil || !(share >= 0 && share <= 100) {
			return 0
		}
		return int(share)
	}
	return 0
}
