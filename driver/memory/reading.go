// SPDX-License-Identifier: MPL-2.0

// Package memory decides whether a desktop may start: how much memory is available within every limit above us,
// what the starts in progress will still take, and how many of them bring themselves up at once.
package memory

import (
	"fmt"
)

// MiB is the unit of Nomad's memory figures, which it writes MB.
const MiB = 1 << 20

// Reading is how much memory a start could take now, and what limits it.
type Reading struct {
	// Known is false when neither the host nor any limit could be read; then AvailableBytes means nothing and
	// no start is refused for it.
	Known bool
	// AvailableBytes is the least of the host's MemAvailable and, for every cgroup above us that has a limit, the
	// limit minus its working set; never negative.
	AvailableBytes uint64
	// Limit is the cgroup limit that AvailableBytes comes from; nil when the host's own memory is the least.
	Limit *Limit
	// HostBytes is the host's MemAvailable, 0 when unknown.
	HostBytes uint64
	// Unknown says in words what could not be read and was therefore left out of the account.
	Unknown []string
}

// Limit is a memory limit of one cgroup.
type Limit struct {
	// Cgroup is its path in the hierarchy, such as /nomad.slice/share.slice.
	Cgroup string
	// Bytes is the limit.
	Bytes uint64
	// WorkingSetBytes is what cannot be reclaimed: usage minus inactive file pages.
	WorkingSetBytes uint64
}

// Source names what the reading is limited by: "cgroup /nomad", "the host" or "unknown".
func (r Reading) Source() string {
	switch {
	case !r.Known:
		return "unknown"
	case r.Limit != nil:
		return "cgroup " + r.Limit.Cgroup
	default:
		return "the host"
	}
}

// AvailableMB is the available memory in whole MiB.
func (r Reading) AvailableMB() int { return int(r.AvailableBytes / MiB) }

// String is the reading for a log line.
func (r Reading) String() string {
	if !r.Known {
		return "available memory unknown"
	}
	if r.Limit == nil {
		return fmt.Sprintf("%d MB available on the host", r.AvailableMB())
	}
	return fmt.Sprintf("%d MB available within cgroup %s (limit %d MB, in use %d MB)",
		r.AvailableMB(), r.Limit.Cgroup, r.Limit.Bytes/MiB, r.Limit.WorkingSetBytes/MiB)
}
