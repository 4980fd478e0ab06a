// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

// maxStats bounds an engine's answer, in bytes.
const maxStats = 1 << 20

// Usage is one sample of the container's own counters.
func (s *sandbox) Usage(ctx context.Context) (isolation.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := s.b.api.ContainerStatsOneShot(ctx, s.record.Container)
	if err != nil {
		return isolation.Usage{}, fmt.Errorf("measure screen: %w", s.b.explain(err))
	}
	defer answer.Body.Close()
	var sample container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxStats)).Decode(&sample); err != nil {
		return isolation.Usage{}, fmt.Errorf("measure screen: %w", err)
	}
	return isolation.Usage{Stats: statsOf(sample), PIDs: s.pids()}, nil
}

// pids are the processes inside as this node sees them: all descend from the first. Of an
// engine elsewhere it sees none.
func (s *sandbox) pids() []int {
	if s.record.Piped || !s.record.Session.Alive() {
		return nil
	}
	below, err := process.Descendants(s.record.Session.PID)
	if err != nil {
		return nil
	}
	return append([]int{s.record.Session.PID}, below...)
}

// statsOf puts an engine's figures into our form. Engines pass memory.stat on as it is,
// which has other names on cgroup v1 (with total_, groups below included) and v2.
func statsOf(sample container.StatsResponse) cgroup.Stats {
	cpu, memory, pids := sample.CPUStats, sample.MemoryStats, sample.PidsStats
	stat := func(v1, v2 string) uint64 {
		if n, ok := memory.Stats[v1]; ok {
			return n
		}
		return memory.Stats[v2]
	}
	stats := cgroup.Stats{
		CPU: &cgroup.CPUStats{
			Total:            nanoseconds(cpu.CPUUsage.TotalUsage),
			User:             nanoseconds(cpu.CPUUsage.UsageInUsermode),
			System:           nanoseconds(cpu.CPUUsage.UsageInKernelmode),
			Periods:          cpu.ThrottlingData.Periods,
			ThrottledPeriods: cpu.ThrottlingData.ThrottledPeriods,
			Throttled:        nanoseconds(cpu.ThrottlingData.ThrottledTime),
		},
		Memory: &cgroup.MemoryStats{
			Usage: memory.Usage, MaxUsage: memory.MaxUsage,
			RSS: stat("total_rss", "anon"), Cache: stat("total_cache", "file"),
			Swap: memory.Stats["total_swap"], Mapped: stat("total_mapped_file", "file_mapped"),
			Kernel: memory.Stats["kernel"],
		},
		Pids: &cgroup.PidsStats{Current: pids.Current},
	}
	stats.Memory.WorkingSet = memory.Usage - min(memory.Usage, stat("total_inactive_file", "inactive_file"))
	// Without a limit an engine shows the node's memory, or numbers near the largest.
	if memory.Limit < 1<<60 {
		stats.Memory.Limit = memory.Limit
	}
	if pids.Limit < 1<<60 {
		stats.Pids.Max = pids.Limit
	}
	return stats
}

func nanoseconds(n uint64) time.Duration { return time.Duration(n) } // #nosec: 292 years
