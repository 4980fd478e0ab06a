// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/screen"
)

// Goal is how far a screen has to come before an Await ends.
type Goal string

// Goals, from the first to the last.
const (
	Registered Goal = "registered"
	Placed     Goal = "placed"
	Running    Goal = "running"
)

// UnplacedError says that no node can take a screen now.
type UnplacedError struct {
	Reasons []string
	// Filtered says that a constraint on the isolation was among the reasons; Full, that a
	// suitable node had no room.
	Filtered bool
	Full     bool
}

func (e *UnplacedError) Error() string { return "no node: " + strings.Join(e.Reasons, "; ") }

// FailedError says that a screen's allocation ended, or did not come up in time.
type FailedError struct {
	Alloc  string // empty before there is one
	Status string
	// Events are the last ones of the task, oldest first.
	Events  []screen.Untrusted
	Timeout bool
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("allocation %s is %s", short(e.Alloc), e.Status)
}

func short(id string) string { return id[:min(8, len(id))] }

// waitTime is how long one blocking query may take; the context bounds the whole.
const waitTime = 30 * time.Second

// Await follows a registered version of a job until its screen has come as far as the
// goal. The error is an *UnplacedError, a *FailedError, or the API's; where ctx has a
// deadline, running out of it is a *FailedError with Timeout.
func Await(ctx context.Context, c *api.Client, job *api.Job, evalID string, goal Goal) error {
	if goal == Registered {
		return nil
	}
	w := waiter{ctx: ctx, client: c, job: job}
	err := w.placed(evalID)
	if err == nil {
		err = w.follow(goal)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &FailedError{Alloc: w.alloc, Status: w.status(), Events: w.events, Timeout: true}
	}
	return err
}

type waiter struct {
	ctx    context.Context
	client *api.Client
	job    *api.Job

	alloc  string
	state  string
	events []screen.Untrusted
}

func (w *waiter) status() string {
	if w.state == "" {
		return "not placed"
	}
	return w.state
}

func (w *waiter) query(index uint64) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: *w.job.Namespace, WaitIndex: index, WaitTime: waitTime}).WithContext(w.ctx)
}

// placed waits for the evaluation, and those that follow it, to end.
func (w *waiter) placed(evalID string) error {
	var index uint64
	for evalID != "" {
		e, meta, err := w.client.Evaluations().Info(evalID, w.query(index))
		if err != nil {
			return fmt.Errorf("evaluation %s: %w", short(evalID), err)
		}
		switch e.Status {
		case "complete":
			if len(e.FailedTGAllocs) > 0 {
				return Unplaced(e.FailedTGAllocs)
			}
			return nil
		case "failed", "canceled":
			if e.NextEval == "" {
				return &UnplacedError{Reasons: []string{"the evaluation " + e.Status + ": " + screen.Distrust(e.StatusDescription).String()}}
			}
			evalID, index = e.NextEval, 0
		default:
			index = meta.LastIndex
		}
	}
	return nil
}

// follow waits for the allocation of this version of the job.
func (w *waiter) follow(goal Goal) error {
	var index uint64
	for {
		all, meta, err := w.client.Jobs().Allocations(*w.job.ID, false, w.query(index))
		if err != nil {
			return fmt.Errorf("allocations of %s: %w", *w.job.ID, err)
		}
		if a := w.current(all); a != nil {
			done, err := w.look(a, goal)
			if done || err != nil {
				return err
			}
		}
		index = meta.LastIndex
	}
}

// current is the newest allocation of the version that is waited for.
func (w *waiter) current(all []*api.AllocationListStub) *api.AllocationListStub {
	var best *api.AllocationListStub
	for _, a := range all {
		if a.JobVersion == *w.job.Version && (best == nil || a.CreateIndex > best.CreateIndex) {
			best = a
		}
	}
	return best
}

func (w *waiter) look(a *api.AllocationListStub, goal Goal) (done bool, err error) {
	w.alloc, w.state = a.ID, a.ClientStatus
	s, _ := fromTask(a, TaskName, stateOf(a))
	w.events = lastEvents(stateOf(a), 5)
	switch a.ClientStatus {
	case api.AllocClientStatusComplete:
		if s.idledOut() {
			return true, nil // it came up, and nobody used it so long
		}
		return false, &FailedError{Alloc: a.ID, Status: a.ClientStatus, Events: w.events}
	case api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return false, &FailedError{Alloc: a.ID, Status: a.ClientStatus, Events: w.events}
	}
	if goal == Placed {
		return true, nil
	}
	return a.ClientStatus == api.AllocClientStatusRunning && s.Usable(), nil
}

// Usable says whether a screen can be used: it is ready, or wakes on the next use.
func (s Screen) Usable() bool {
	return s.State == screen.Ready || s.State == screen.Asleep || s.State == screen.Frozen
}

// stateOf is the state of the screen's task; an empty one before the client took it up.
func stateOf(a *api.AllocationListStub) *api.TaskState {
	if s := a.TaskStates[TaskName]; s != nil {
		return s
	}
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		return a.TaskStates[name]
	}
	return &api.TaskState{State: "pending"}
}

func lastEvents(s *api.TaskState, most int) []screen.Untrusted {
	var out []screen.Untrusted
	for _, e := range s.Events[max(0, len(s.Events)-most):] {
		out = append(out, screen.Distrust(e.Type+": "+e.DisplayMessage))
	}
	return out
}

// Unplaced puts the scheduler's numbers into words.
func Unplaced(failed map[string]*api.AllocationMetric) *UnplacedError {
	out := &UnplacedError{}
	add := func(format string, args ...any) {
		out.Reasons = append(out.Reasons, screen.Distrust(fmt.Sprintf(format, args...)).String())
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		m := failed[name]
		if m.NodesEvaluated == 0 {
			add("no node of this pool and these datacenters is ready")
		}
		for _, class := range slices.Sorted(maps.Keys(m.ClassFiltered)) {
			add("class %q: %d nodes filtered", class, m.ClassFiltered[class])
		}
		for _, c := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
			add("%s: %d nodes filtered", c, m.ConstraintFiltered[c])
			out.Filtered = out.Filtered || strings.Contains(c, "botscreen")
		}
		for _, dim := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
			add("%s exhausted on %d nodes", dim, m.DimensionExhausted[dim])
		}
		out.Full = out.Full || m.NodesExhausted > 0
	}
	return out
}
