// SPDX-License-Identifier: MPL-2.0

package server

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/jobdiff"
	"github.com/botscreen/botscreen/shared/devagent/scheduler"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// Plan says what registering a job would do. Nothing is stored.
func (s *Server) Plan(job *api.Job, diff bool) (*api.JobPlanResponse, error) {
	job, err := s.admit(job)
	if err != nil {
		return nil, err
	}
	resp := &api.JobPlanResponse{}
	var old *api.Job
	s.store.Read(func(v *state.View) {
		var plan *scheduler.Plan
		old, plan = s.dryRun(v, job, resp)
		resp.Annotations = &api.PlanAnnotations{DesiredTGUpdates: plan.Desired}
		if len(plan.Failed) > 0 {
			resp.FailedTGAllocs = plan.Failed
		}
	})
	if diff {
		resp.Diff = jobdiff.Diff(old, job)
		annotate(resp.Diff, resp.Annotations)
	}
	return resp, nil
}

// dryRun schedules the job as its next version.
func (s *Server) dryRun(v *state.View, job *api.Job, resp *api.JobPlanResponse) (*api.Job, *scheduler.Plan) {
	index, version := v.Index()+1, uint64(0)
	job.CreateIndex = &index
	var old *api.Job
	if row := v.Job(*job.Namespace, *job.ID); row != nil {
		old = row.Job
		job.CreateIndex, version = old.CreateIndex, *old.Version
		resp.JobModifyIndex = *old.JobModifyIndex
		if !sameSpec(old, job) {
			version++
		}
	}
	job.Version, job.JobModifyIndex, job.ModifyIndex = &version, &index, &index
	e := newEval(job, triggerRegister)
	plan := scheduler.Schedule(input(v, e, job, time.Now()))
	if len(plan.Failed) > 0 {
		resp.CreatedEvals = []*api.Evaluation{e}
	}
	return old, plan
}

// annotate writes into the difference of each group what happens to its
// allocations.
func annotate(diff *api.JobDiff, a *api.PlanAnnotations) {
	for _, g := range diff.TaskGroups {
		u := a.DesiredTGUpdates[g.Name]
		if u == nil {
			continue
		}
		g.Updates = map[string]uint64{}
		for word, n := range map[string]uint64{
			"create": u.Place, "destroy": u.Stop, "migrate": u.Migrate, "in-place update": u.InPlaceUpdate,
			"create/destroy update": u.DestructiveUpdate, "ignore": u.Ignore, "canary": u.Canary,
		} {
			if n > 0 {
				g.Updates[word] = n
			}
		}
	}
}

// Validate finds what is wrong with a job. Nothing is stored.
func (s *Server) Validate(job *api.Job) error {
	_, err := s.admit(job)
	return err
}
