// SPDX-License-Identifier: MPL-2.0

package client

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// jitter is how much of the delay is added at random, so that tasks that failed
// together do not restart together.
const jitter = 0.25

// letGo says that the agent ends and the task does not.
const letGo = ""

// verdict is what happens after a run of a task.
type verdict struct {
	// event is the type of event that tells of it: api.TaskRestarting,
	// api.TaskNotRestarting, api.TaskKilled, or api.TaskTerminated for a task that is
	// done. letGo is none of them.
	event  string
	delay  time.Duration
	reason string
}

// restarts applies a restart policy over the runs of one task. It is used by one
// goroutine.
type restarts struct {
	policy *api.RestartPolicy
	// onSuccess says that a task that ended well is started again too.
	onSuccess bool
	since     time.Time
	count     int
}

func newRestarts(policy *api.RestartPolicy, jobType string, now time.Time) *restarts {
	onSuccess := jobType != api.JobTypeBatch && jobType != api.JobTypeSysbatch
	return &restarts{policy: policy, onSuccess: onSuccess, since: now}
}

// afterStart decides after a start that failed.
func (r *restarts) afterStart(err error, now time.Time) verdict {
	if *r.policy.Attempts == 0 {
		return verdict{event: api.TaskNotRestarting, reason: reasonNoRestarts}
	}
	if !nomadplugin.IsRecoverable(err) {
		r.attempt(now)
		return verdict{event: api.TaskNotRestarting, reason: reasonUnrecoverable}
	}
	return r.next(now)
}

// afterExit decides after a run that ended.
func (r *restarts) afterExit(exit host.Exit, now time.Time) verdict {
	done := exit.Successful() && !r.onSuccess
	switch {
	case *r.policy.Attempts == 0 && done:
		return verdict{event: api.TaskTerminated, reason: reasonNoRestarts}
	case *r.policy.Attempts == 0:
		return verdict{event: api.TaskNotRestarting, reason: reasonNoRestarts}
	case done:
		r.attempt(now)
		return verdict{event: api.TaskTerminated, reason: "Restart unnecessary as task terminated successfully"}
	}
	return r.next(now)
}

// attempt counts a run within the policy's interval.
func (r *restarts) attempt(now time.Time) {
	if now.After(r.since.Add(*r.policy.Interval)) {
		r.count, r.since = 0, now
	}
	r.count++
}

func (r *restarts) next(now time.Time) verdict {
	r.attempt(now)
	if r.count <= *r.policy.Attempts {
		delay := *r.policy.Delay
		return verdict{event: api.TaskRestarting, delay: delay + time.Duration(jitter*rand.Float64()*float64(delay)), reason: reasonWithinPolicy}
	}
	if *r.policy.Mode == "fail" {
		reason := fmt.Sprintf(`Exceeded allowed attempts %d in interval %v and mode is "fail"`, *r.policy.Attempts, *r.policy.Interval)
		return verdict{event: api.TaskNotRestarting, reason: reason}
	}
	return verdict{event: api.TaskRestarting, delay: r.since.Add(*r.policy.Interval).Sub(now), reason: reasonDelay}
}
