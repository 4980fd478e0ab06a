// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stats is what a group has used. A part that the machine does not count is nil.
type Stats struct {
	CPU    *CPUStats
	Memory *MemoryStats
	Pids   *PidsStats
}

// CPUStats is processor time since the group was made.
type CPUStats struct {
	Total, User, System time.Duration
	// Periods and ThrottledPeriods count the periods of a bandwidth limit, if there is one.
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
}

// MemoryStats is memory now, in bytes.
type MemoryStats struct {
	Usage, MaxUsage          uint64
	RSS, Cache, Swap, Mapped uint64
	// Limit is the group's own limit, 0 for none.
	Limit uint64
	// WorkingSet is what cannot be reclaimed: Usage without inactive file pages.
	WorkingSet uint64
	Kernel     uint64
}

// PidsStats counts threads, which is what pids.max limits.
type PidsStats struct {
	Current, Max uint64 // Max is 0 for no limit
}

// Stats reads the counters of the group now.
func (g *Group) Stats() (Stats, error) {
	var s Stats
	var r fileReader
	if d := g.with("cpuacct"); d != nil {
		s.CPU = g.cpu(d, &r)
	}
	if d := g.with("memory"); d != nil && r.has(d.dir, memoryUsage(d.V2)) {
		s.Memory = memory(d, &r)
	}
	if d := g.with("pids"); d != nil && r.has(d.dir, "pids.current") {
		s.Pids = &PidsStats{Current: r.number(d.dir, "pids.current"), Max: r.number(d.dir, "pids.max")}
	}
	if r.err != nil {
		return Stats{}, fmt.Errorf("read counters of cgroup %s: %w", g.name, r.err)
	}
	return s, nil
}

func (g *Group) cpu(d *placed, r *fileReader) *CPUStats {
	if d.V2 {
		stat := r.flat(d.dir, "cpu.stat")
		return &CPUStats{
			Total:            micro(stat["usage_usec"]),
			User:             micro(stat["user_usec"]),
			System:           micro(stat["system_usec"]),
			Periods:          stat["nr_periods"],
			ThrottledPeriods: stat["nr_throttled"],
			Throttled:        micro(stat["throttled_usec"]),
		}
	}
	c := &CPUStats{
		Total:  time.Duration(r.number(d.dir, "cpuacct.usage")),
		User:   time.Duration(r.number(d.dir, "cpuacct.usage_user")),
		System: time.Duration(r.number(d.dir, "cpuacct.usage_sys")),
	}
	// Without CFS bandwidth in the kernel the file is empty or missing.
	if cpu := g.with("cpu"); cpu != nil && r.has(cpu.dir, "cpu.stat") {
		stat := r.flat(cpu.dir, "cpu.stat")
		c.Periods, c.ThrottledPeriods = stat["nr_periods"], stat["nr_throttled"]
		c.Throttled = time.Duration(stat["throttled_time"])
	}
	return c
}

func micro(usec uint64) time.Duration { return time.Duration(usec) * time.Microsecond }

func memoryUsage(v2 bool) string {
	if v2 {
		return "memory.current"
	}
	return "memory.usage_in_bytes"
}

func memory(d *placed, r *fileReader) *MemoryStats {
	m := &MemoryStats{Usage: r.number(d.dir, memoryUsage(d.V2))}
	stat := r.flat(d.dir, "memory.stat")
	inactive := stat["inactive_file"]
	if d.V2 {
		m.RSS, m.Cache, m.Mapped, m.Kernel = stat["anon"], stat["file"], stat["file_mapped"], stat["kernel"]
		m.Limit = r.number(d.dir, "memory.max")
		// Both came late (5.19) or depend on the kernel's configuration.
		m.MaxUsage = r.optional(d.dir, "memory.peak")
		m.Swap = r.optional(d.dir, "memory.swap.current")
	} else {
		// The total_ figures include the groups below, as v2's do.
		m.RSS, m.Cache, m.Swap, m.Mapped = stat["total_rss"], stat["total_cache"], stat["total_swap"], stat["total_mapped_file"]
		m.MaxUsage = r.number(d.dir, "memory.max_usage_in_bytes")
		m.Kernel = r.optional(d.dir, "memory.kmem.usage_in_bytes")
		inactive = stat["total_inactive_file"]
		if limit := r.number(d.dir, "memory.limit_in_bytes"); limit < 1<<60 {
			m.Limit = limit
		}
	}
	m.WorkingSet = m.Usage - min(m.Usage, inactive)
	return m
}

// OOMKills counts the processes of the group that the kernel killed because its memory limit was reached.
func (g *Group) OOMKills() (uint64, error) {
	d := g.with("memory")
	if d == nil {
		return 0, nil
	}
	file := "memory.oom_control"
	if d.V2 {
		file = "memory.events"
	}
	var r fileReader
	if !r.has(d.dir, file) {
		return 0, nil
	}
	kills := r.flat(d.dir, file)["oom_kill"]
	if r.err != nil {
		return 0, fmt.Errorf("count OOM kills of cgroup %s: %w", g.name, r.err)
	}
	return kills, nil
}

// fileReader reads counters and keeps the first error.
type fileReader struct{ err error }

func (r *fileReader) read(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && r.err == nil {
		r.err = err
	}
	return strings.TrimSpace(string(data))
}

func (r *fileReader) has(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// number reads a file of one number; "max" is 0.
func (r *fileReader) number(dir, file string) uint64 {
	text := r.read(dir, file)
	if text == "max" || r.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%s: %.40q is not a number", file, text)
	}
	return n
}

// optional is number for a file that not every kernel has.
func (r *fileReader) optional(dir, file string) uint64 {
	if !r.has(dir, file) {
		return 0
	}
	return r.number(dir, file)
}

func (r *fileReader) flat(dir, file string) map[string]uint64 {
	return ParseFlat([]byte(r.read(dir, file)))
}

// ParseFlat reads a flat keyed kernel file (memory.stat, cpu.stat, memory.events), one "key number" per line, and
// leaves out what is not.
func ParseFlat(data []byte) map[string]uint64 {
	found := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		key, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(text, 10, 64); ok && err == nil {
			found[key] = n
		}
	}
	return found
}
