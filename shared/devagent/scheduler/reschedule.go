// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// rescheduleWindow is how much earlier than its time a failed allocation may be
// replaced, as in Nomad.
const rescheduleWindow = time.Second

// RescheduleAt says when a failed allocation is to be replaced; ok is false when its
// policy does not allow it (any more).
func RescheduleAt(policy *api.ReschedulePolicy, a *api.Allocation) (at time.Time, ok bool) {
	if policy == nil || a.ClientStatus != api.AllocClientStatusFailed || a.NextAllocation != "" {
		return time.Time{}, false
	}
	var events []*api.RescheduleEvent
	if a.RescheduleTracker != nil {
		events = a.RescheduleTracker.Events
	}
	failed := failedAt(a)
	if !*policy.Unlimited {
		recent := 0
		for _, e := range events {
			if failed.Sub(time.Unix(0, e.RescheduleTime)) < *policy.Interval {
				recent++
			}
		}
		if recent >= *policy.Attempts {
			return time.Time{}, false
		}
	}
	return failed.Add(rescheduleDelay(policy, len(events))), true
}

// rescheduleDelay is the wait before the attempt after n earlier ones.
func rescheduleDelay(policy *api.ReschedulePolicy, n int) time.Duration {
	delay, before := *policy.Delay, time.Duration(0)
	for range n {
		switch *policy.DelayFunction {
		case "exponential":
			delay *= 2
		case "fibonacci":
			delay, before = delay+before, delay
		}
		if *policy.MaxDelay > 0 && delay > *policy.MaxDelay {
			return *policy.MaxDelay
		}
	}
	return delay
}

// failedAt is when the last task of an allocation ended.
func failedAt(a *api.Allocation) time.Time {
	var last time.Time
	for _, s := range a.TaskStates {
		if s.FinishedAt.After(last) {
			last = s.FinishedAt
		}
	}
	if last.IsZero() {
		last = time.Unix(0, a.ModifyTime)
	}
	return last
}

// rescheduled is the history of the allocation that replaces old.
func rescheduled(old *api.Allocation, now time.Time) *api.RescheduleTracker {
	out := &api.RescheduleTracker{LastReschedule: "ok"}
	if old.RescheduleTracker != nil {
		out.Events = append(out.Events, old.RescheduleTracker.Events...)
	}
	out.Events = append(out.Events, &api.RescheduleEvent{
		RescheduleTime: now.UnixNano(), PrevAllocID: old.ID, PrevNodeID: old.NodeID,
	})
	return out
}
