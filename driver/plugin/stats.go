// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v3/process"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// TaskStats samples the screen's cgroup and its processes until the screen ends.
func (d *Driver) TaskStats(ctx context.Context, id nomadplugin.TaskID, interval time.Duration, send func(*nomadplugin.TaskStats) error) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if interval <= 0 {
		interval = time.Second
	}
	d.mu.Lock()
	sampler := sampler{mhz: d.mhz, pids: map[int]cpuReading{}}
	d.mu.Unlock()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		usage, err := t.Usage(ctx)
		if err == nil {
			stats := sampler.sample(usage, time.Now())
			stats.Id = string(id)
			if err := send(stats); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-t.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sampler turns counters into rates; it remembers the reading before.
type sampler struct {
	mhz  float64 // of the whole node; 0 where the agent did not say
	last cpuReading
	pids map[int]cpuReading
}

type cpuReading struct {
	at                  time.Time
	total, user, system time.Duration
}

func (s *sampler) sample(u isolation.Usage, now time.Time) *nomadplugin.TaskStats {
	usage := &driverpb.TaskResourceUsage{}
	if u.CPU != nil {
		reading := cpuReading{at: now, total: u.CPU.Total, user: u.CPU.User, system: u.CPU.System}
		usage.Cpu = s.rate(s.last, reading)
		s.last = reading
		usage.Cpu.ThrottledPeriods = u.CPU.ThrottledPeriods
		usage.Cpu.ThrottledTime = uint64(u.CPU.Throttled)
		usage.Cpu.MeasuredFields = append(usage.Cpu.MeasuredFields, driverpb.CPUUsage_THROTTLED_PERIODS, driverpb.CPUUsage_THROTTLED_TIME)
	}
	if u.Memory != nil {
		usage.Memory = &driverpb.MemoryUsage{
			Rss: u.Memory.RSS, Cache: u.Memory.Cache, Swap: u.Memory.Swap, Usage: u.Memory.Usage, MaxUsage: u.Memory.MaxUsage,
			MeasuredFields: []driverpb.MemoryUsage_Fields{
				driverpb.MemoryUsage_RSS, driverpb.MemoryUsage_CACHE, driverpb.MemoryUsage_SWAP,
				driverpb.MemoryUsage_USAGE, driverpb.MemoryUsage_MAX_USAGE,
			},
		}
	}
	return &nomadplugin.TaskStats{
		Timestamp: timestamppb.New(now), AggResourceUsage: usage, ResourceUsageByPid: s.perProcess(u.PIDs, now),
	}
}

// rate is in per cent of one core; ticks are MHz of the node.
func (s *sampler) rate(before, after cpuReading) *driverpb.CPUUsage {
	usage := &driverpb.CPUUsage{MeasuredFields: []driverpb.CPUUsage_Fields{
		driverpb.CPUUsage_SYSTEM_MODE, driverpb.CPUUsage_USER_MODE, driverpb.CPUUsage_PERCENT, driverpb.CPUUsage_TOTAL_TICKS,
	}}
	elapsed := after.at.Sub(before.at)
	if before.at.IsZero() || elapsed <= 0 {
		return usage // a first sample has nothing to compare with
	}
	share := func(from, to time.Duration) float64 { return max(0, 100*float64(to-from)/float64(elapsed)) }
	// The total is exact. How it divides the kernel may only have sampled, by its ticks.
	usage.Percent = share(before.total, after.total)
	usage.UserMode = share(before.user, after.user)
	usage.SystemMode = share(before.system, after.system)
	if sampled := usage.UserMode + usage.SystemMode; sampled > 0 {
		usage.UserMode *= usage.Percent / sampled
		usage.SystemMode *= usage.Percent / sampled
	}
	usage.TotalTicks = usage.Percent / 100 * s.mhz
	return usage
}

func (s *sampler) perProcess(pids []int, now time.Time) map[string]*driverpb.TaskResourceUsage {
	result := make(map[string]*driverpb.TaskResourceUsage, len(pids))
	readings := make(map[int]cpuReading, len(pids))
	for _, pid := range pids {
		p := process.Process{Pid: int32(pid)}
		times, err := p.Times()
		if err != nil {
			continue // ended meanwhile
		}
		reading := cpuReading{at: now, total: seconds(times.User + times.System), user: seconds(times.User), system: seconds(times.System)}
		readings[pid] = reading
		usage := &driverpb.TaskResourceUsage{Cpu: s.rate(s.pids[pid], reading)}
		if memory, err := p.MemoryInfo(); err == nil {
			usage.Memory = &driverpb.MemoryUsage{
				Rss: memory.RSS, Swap: memory.Swap,
				MeasuredFields: []driverpb.MemoryUsage_Fields{driverpb.MemoryUsage_RSS, driverpb.MemoryUsage_SWAP},
			}
		}
		result[strconv.Itoa(pid)] = usage
	}
	s.pids = readings
	return result
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// totalMHz is one core's share of the node's compute, as Nomad counts ticks: the total
// divided by the number of cores.
func totalMHz(t *basepb.ClientTopology) float64 {
	cores := len(t.GetCores())
	if cores == 0 {
		return 0
	}
	total := float64(t.GetOverrideTotalCompute())
	if total == 0 {
		for _, c := range t.GetCores() {
			switch {
			case c.GetBaseSpeed() > 0:
				total += float64(c.GetBaseSpeed())
			case c.GetMaxSpeed() > 0:
				total += float64(c.GetMaxSpeed())
			default:
				total += float64(c.GetGuessSpeed())
			}
		}
	}
	return total / float64(cores)
}
