// SPDX-License-Identifier: MPL-2.0

package server

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/ident"
	"github.com/botscreen/botscreen/shared/devagent/scheduler"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// input collects what a decision about a job is made on.
func input(v *state.View, e *api.Evaluation, job *api.Job, now time.Time) scheduler.Input {
	in := scheduler.Input{
		Job:      job,
		Allocs:   v.JobAllocs(e.Namespace, e.JobID),
		Node:     v.Node(),
		Region:   Region,
		Eval:     e,
		Now:      now,
		PortFree: portFree,
	}
	in.Others = v.Allocs(func(a *api.Allocation) bool {
		return scheduler.Live(a) && (a.JobID != e.JobID || a.Namespace != e.Namespace)
	})
	if d := v.LatestDeployment(e.Namespace, e.JobID); job != nil {
		in.MaxReplace = maxReplace(job, d, in.Allocs)
	}
	return in
}

// process decides about one evaluation and applies the plan.
func (s *Server) process(e *api.Evaluation) error {
	now := time.Now()
	_, err := s.store.Update(func(tx *state.Tx) error {
		current := tx.Eval(e.ID)
		if current == nil || !waiting(current) {
			return nil
		}
		var job *api.Job
		row := tx.Job(e.Namespace, e.JobID)
		if row != nil {
			job = row.Job
		}
		plan := scheduler.Schedule(input(tx.View, current, job, now))
		s.apply(tx, current, row, plan)
		return nil
	})
	return err
}

// apply writes a plan and what becomes of its evaluation.
func (s *Server) apply(tx *state.Tx, current *api.Evaluation, row *state.Job, plan *scheduler.Plan) {
	done := *current
	done.SnapshotIndex = tx.Index()
	done.PlanAnnotations = &api.PlanAnnotations{DesiredTGUpdates: plan.Desired}
	done.QueuedAllocations = plan.Queued
	done.FailedTGAllocs = nil
	if len(plan.Failed) > 0 {
		done.FailedTGAllocs = plan.Failed
	}
	deployment := s.deploy(tx, row, plan)
	if deployment != "" {
		done.DeploymentID = deployment
	}
	for _, a := range slices.Concat(plan.Stop, plan.Update, plan.Place) {
		tx.PutAlloc(a)
	}
	follow(tx, &done, plan)
	settle(tx, &done, row)
	finishJob(tx, row, plan, &done)
}

// settle decides how the evaluation ends: complete, or blocked until there is room.
func settle(tx *state.Tx, e *api.Evaluation, row *state.Job) {
	short := len(e.FailedTGAllocs) > 0 && row != nil
	switch {
	case e.Status == statusBlocked && short:
		// It stays blocked, with the newest reasons.
	case short:
		e.Status, e.StatusDescription = statusComplete, ""
		blocked := newEval(row.Job, triggerQueued)
		blocked.Status, blocked.StatusDescription = statusBlocked, "created to place remaining allocations"
		blocked.PreviousEval = e.ID
		blocked.FailedTGAllocs = e.FailedTGAllocs
		blocked.SnapshotIndex = tx.Index()
		blocked.JobModifyIndex = e.JobModifyIndex
		e.BlockedEval = blocked.ID
		cancelBlocked(tx, e, blocked.ID)
		tx.PutEval(blocked)
	default:
		e.Status, e.StatusDescription = statusComplete, ""
		cancelBlocked(tx, e, "")
	}
	tx.PutEval(e)
}

// cancelBlocked ends the job's other blocked evaluations: the newest one speaks.
func cancelBlocked(tx *state.Tx, e *api.Evaluation, except string) {
	for _, other := range tx.JobEvals(e.Namespace, e.JobID) {
		if other.Status == statusBlocked && other.ID != e.ID && other.ID != except {
			canceled := *other
			canceled.Status = statusCanceled
			canceled.StatusDescription = "evaluation " + e.ID + " successful"
			tx.PutEval(&canceled)
		}
	}
}

// follow makes the evaluations that replace failed allocations later.
func follow(tx *state.Tx, e *api.Evaluation, plan *scheduler.Plan) {
	for _, f := range plan.FollowUps {
		next := *e
		next.ID = ident.UUID()
		next.CreateIndex, next.Status, next.TriggeredBy = 0, statusPending, triggerFollowUp
		next.StatusDescription = "created for delayed rescheduling"
		next.PreviousEval, next.BlockedEval, next.NextEval = e.ID, "", ""
		next.WaitUntil = f.At
		next.PlanAnnotations, next.FailedTGAllocs, next.QueuedAllocations = nil, nil, nil
		for _, a := range f.Allocs {
			waits := *a
			waits.FollowupEvalID = next.ID
			tx.PutAlloc(&waits)
		}
		tx.PutEval(&next)
	}
}
