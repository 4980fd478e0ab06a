// SPDX-License-Identifier: MPL-2.0

package server

import (
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/scheduler"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// The states of a job.
const (
	jobPending = "pending"
	jobRunning = "running"
	jobDead    = "dead"
)

// jobStatus says how a job is, from its evaluations and allocations.
func jobStatus(job *api.Job, evals []*api.Evaluation, allocs []*api.Allocation) string {
	ended := false
	for _, a := range allocs {
		if *a.Job.CreateIndex != *job.CreateIndex {
			// Of a job of the same id that was purged.
			continue
		}
		if !a.ServerTerminalStatus() && !a.ClientTerminalStatus() || a.ServerTerminalStatus() && !a.ClientTerminalStatus() {
			return jobRunning
		}
		ended = true
	}
	if job.Stop != nil && *job.Stop {
		return jobDead
	}
	for _, e := range evals {
		if waiting(e) {
			return jobPending
		}
		ended = true
	}
	if ended {
		return jobDead
	}
	return jobPending
}

// finishJob writes the state of a job as it is after a plan.
func finishJob(tx *state.Tx, row *state.Job, plan *scheduler.Plan, e *api.Evaluation) {
	if row == nil {
		return
	}
	allocs := map[string]*api.Allocation{}
	for _, a := range tx.JobAllocs(e.Namespace, e.JobID) {
		allocs[a.ID] = a
	}
	for _, list := range [][]*api.Allocation{plan.Stop, plan.Update, plan.Place} {
		for _, a := range list {
			allocs[a.ID] = a
		}
	}
	evals := tx.Evals(func(o *api.Evaluation) bool {
		return o.Namespace == e.Namespace && o.JobID == e.JobID && o.ID != e.ID && o.Status == statusPending
	})
	evals = append(evals, e)
	if e.BlockedEval != "" {
		evals = append(evals, &api.Evaluation{Status: statusBlocked})
	}
	if len(plan.FollowUps) > 0 {
		evals = append(evals, &api.Evaluation{Status: statusPending})
	}
	setStatus(tx, row, jobStatus(row.Job, evals, values(allocs)))
}

func values(m map[string]*api.Allocation) []*api.Allocation {
	var out []*api.Allocation
	for _, a := range m {
		out = append(out, a)
	}
	return out
}

// setStatus writes another state into a job. The index by which submitters compare
// (JobModifyIndex) stays.
func setStatus(tx *state.Tx, row *state.Job, status string) {
	if row.Job.Status != nil && *row.Job.Status == status {
		return
	}
	job := *row.Job
	index := tx.Index()
	job.Status, job.ModifyIndex = &status, &index
	next := *row
	next.Job = &job
	tx.PutJob(&next)
}

// Summary counts a job's allocations per group.
func Summary(v *state.View, row *state.Job) *api.JobSummary {
	job := row.Job
	out := &api.JobSummary{
		JobID: *job.ID, Namespace: *job.Namespace, Summary: map[string]api.TaskGroupSummary{},
		Children: &api.JobChildrenSummary{}, CreateIndex: *job.CreateIndex, ModifyIndex: *job.ModifyIndex,
	}
	for _, g := range job.TaskGroups {
		out.Summary[*g.Name] = api.TaskGroupSummary{}
	}
	for _, a := range v.JobAllocs(*job.Namespace, *job.ID) {
		s := out.Summary[a.TaskGroup]
		switch a.ClientStatus {
		case api.AllocClientStatusPending:
			s.Starting++
		case api.AllocClientStatusRunning:
			s.Running++
		case api.AllocClientStatusComplete:
			s.Complete++
		case api.AllocClientStatusFailed:
			s.Failed++
		case api.AllocClientStatusLost:
			s.Lost++
		default:
			s.Unknown++
		}
		out.Summary[a.TaskGroup] = s
		out.ModifyIndex = max(out.ModifyIndex, a.ModifyIndex)
	}
	queued(v, job, out)
	return out
}

// queued adds the allocations that wait for room.
func queued(v *state.View, job *api.Job, out *api.JobSummary) {
	for _, e := range v.JobEvals(*job.Namespace, *job.ID) {
		if e.Status == statusCanceled || e.QueuedAllocations == nil {
			continue
		}
		for group, n := range e.QueuedAllocations {
			s, ok := out.Summary[group]
			if ok {
				s.Queued = n
				out.Summary[group] = s
			}
		}
		out.ModifyIndex = max(out.ModifyIndex, e.ModifyIndex)
		return
	}
}
