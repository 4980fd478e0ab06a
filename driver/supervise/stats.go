// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
)

var _ controlserver.StatsReader = (*supervisor)(nil)

// count changes the counters.
func (s *supervisor) count(change func(*control.Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counts)
}

func (s *supervisor) countWake(took time.Duration) {
	s.count(func(c *control.Counts) { c.Wakes++; c.WakeNs += took })
}

// Stats is what the screen uses and what has happened to it. Whoever may not read the
// screen's cgroup, or where there is none, gets the counters alone.
func (s *supervisor) Stats(context.Context) (control.Stats, error) {
	stats := control.Stats{Time: time.Now().UTC(), Namespace: s.config.Namespace}
	s.mu.Lock()
	stats.Counts = s.counts
	s.mu.Unlock()
	stats.Counts.Refusals = s.refused()
	stats.Counts.SentBytes, stats.Counts.ReceivedBytes = s.relay.Relayed()
	if err := s.measure(&stats); err != nil {
		s.log.Debug("the screen is not measured", "error", err)
	}
	return stats, nil
}

// measure reads the kernel's counters, which anybody may.
func (s *supervisor) measure(stats *control.Stats) error {
	tree, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		return err
	}
	group, err := tree.Of(cgroup.Host{}, s.config.Session.PID, s.config.Group)
	if err != nil {
		return err
	}
	used, err := group.Stats()
	if err != nil {
		return err
	}
	pids, err := group.Procs()
	if err != nil {
		return err
	}
	if !s.config.Session.Alive() {
		return fmt.Errorf("session %d has ended", s.config.Session.PID)
	}
	stats.Processes = len(pids)
	if c := used.CPU; c != nil {
		stats.CPUUserNs, stats.CPUSystemNs = uint64(c.User), uint64(c.System)
	}
	if m := used.Memory; m != nil {
		stats.MemoryBytes, stats.CacheBytes, stats.SwapBytes, stats.MaxBytes = m.WorkingSet, m.Cache, m.Swap, m.MaxUsage
	}
	return nil
}
