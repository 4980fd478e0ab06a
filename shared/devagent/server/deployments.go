// SPDX-License-Identifier: MPL-2.0

package server

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/ident"
	"github.com/botscreen/botscreen/shared/devagent/scheduler"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// The states of a deployment, with Nomad's descriptions.
const (
	deploymentRunning    = "running"
	deploymentSuccessful = "successful"
	deploymentFailed     = "failed"
	deploymentCancelled  = "cancelled"

	describeRunning    = "Deployment is running"
	describeSuccessful = "Deployment completed successfully"
	describeStopped    = "Cancelled because job is stopped"
	describeNewer      = "Cancelled due to newer version of job"
	describeUnhealthy  = "Failed due to unhealthy allocations"
	describeDeadline   = "Failed due to progress deadline"
	describeByUser     = "Deployment marked as failed"
)

// rolls says whether changes of a job's group go through a deployment.
func rolls(job *api.Job, g *api.TaskGroup) bool {
	return *job.Type == api.JobTypeService && g.Update != nil && g.Update.MaxParallel != nil && *g.Update.MaxParallel > 0
}

func active(d *api.Deployment, job *api.Job) bool {
	return d != nil && d.Status == deploymentRunning && d.JobVersion == *job.Version && d.JobCreateIndex == *job.CreateIndex
}

// maxReplace bounds how many allocations of each group may be replaced now:
// max_parallel less those of the new version that have yet to become healthy.
func maxReplace(job *api.Job, d *api.Deployment, allocs []*api.Allocation) map[string]int {
	out := map[string]int{}
	for _, g := range job.TaskGroups {
		if !rolls(job, g) {
			continue
		}
		out[*g.Name] = *g.Update.MaxParallel
		if d != nil && d.JobVersion == *job.Version && d.Status == deploymentFailed {
			out[*g.Name] = 0
			continue
		}
		for _, a := range allocs {
			if a.TaskGroup == *g.Name && scheduler.Live(a) && *a.Job.Version == *job.Version && !healthy(a) && active(d, job) {
				out[*g.Name]--
			}
		}
		out[*g.Name] = max(out[*g.Name], 0)
	}
	return out
}

func healthy(a *api.Allocation) bool {
	return a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil && *a.DeploymentStatus.Healthy
}

func unhealthy(a *api.Allocation) bool {
	return a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil && !*a.DeploymentStatus.Healthy
}

// deploy puts the allocations of a plan under the job's deployment, and makes one
// where a new version starts to roll out. It returns the deployment's id, if any.
func (s *Server) deploy(tx *state.Tx, row *state.Job, plan *scheduler.Plan) string {
	if row == nil || row.Job.Stop != nil && *row.Job.Stop {
		return ""
	}
	job := row.Job
	d := tx.LatestDeployment(*job.Namespace, *job.ID)
	if !active(d, job) {
		if d != nil && d.JobVersion == *job.Version && d.JobCreateIndex == *job.CreateIndex || !changesRoll(job, plan) {
			return ""
		}
		if d != nil && d.Status == deploymentRunning {
			endDeployment(tx, d, deploymentCancelled, describeNewer)
		}
		d = newDeployment(job)
	}
	next := copyDeployment(d)
	for _, a := range plan.Place {
		if state := next.TaskGroups[a.TaskGroup]; state != nil {
			a.DeploymentID = next.ID
			state.PlacedAllocs++
			state.RequireProgressBy = time.Now().Add(state.ProgressDeadline)
		}
	}
	for _, a := range plan.Update {
		if next.TaskGroups[a.TaskGroup] != nil {
			a.DeploymentID, a.DeploymentStatus = next.ID, nil
			next.TaskGroups[a.TaskGroup].PlacedAllocs++
		}
	}
	tx.PutDeployment(next)
	return next.ID
}

func changesRoll(job *api.Job, plan *scheduler.Plan) bool {
	for _, g := range job.TaskGroups {
		if d := plan.Desired[*g.Name]; rolls(job, g) && d != nil && d.Place+d.DestructiveUpdate+d.InPlaceUpdate > 0 {
			return true
		}
	}
	return false
}

func newDeployment(job *api.Job) *api.Deployment {
	d := &api.Deployment{
		ID: ident.UUID(), Namespace: *job.Namespace, JobID: *job.ID, JobVersion: *job.Version,
		JobModifyIndex: *job.ModifyIndex, JobSpecModifyIndex: *job.JobModifyIndex, JobCreateIndex: *job.CreateIndex,
		TaskGroups: map[string]*api.DeploymentState{}, Status: deploymentRunning, StatusDescription: describeRunning,
	}
	for _, g := range job.TaskGroups {
		if rolls(job, g) {
			d.TaskGroups[*g.Name] = &api.DeploymentState{
				AutoRevert: *g.Update.AutoRevert, ProgressDeadline: *g.Update.ProgressDeadline, DesiredTotal: *g.Count,
			}
		}
	}
	return d
}

func copyDeployment(d *api.Deployment) *api.Deployment {
	next := *d
	next.TaskGroups = map[string]*api.DeploymentState{}
	for name, s := range d.TaskGroups {
		one := *s
		next.TaskGroups[name] = &one
	}
	return &next
}

func endDeployment(tx *state.Tx, d *api.Deployment, status, description string) {
	next := copyDeployment(d)
	next.Status, next.StatusDescription = status, description
	tx.PutDeployment(next)
}

// stopDeployment ends the deployment of a job that is stopped.
func stopDeployment(tx *state.Tx, row *state.Job) {
	if d := tx.LatestDeployment(*row.Job.Namespace, *row.Job.ID); d != nil && d.Status == deploymentRunning {
		endDeployment(tx, d, deploymentCancelled, describeStopped)
	}
}

// watchDeployments looks at the health of what rolls out and says when to look again.
func (s *Server) watchDeployments(now time.Time) (time.Duration, error) {
	var running []*api.Deployment
	s.store.Read(func(v *state.View) {
		running = v.Deployments(func(d *api.Deployment) bool { return d.Status == deploymentRunning })
	})
	wait := idle
	for _, d := range running {
		next, err := s.watchDeployment(d.ID, now)
		if err != nil {
			return wait, fmt.Errorf("watch deployment %s: %w", d.ID, err)
		}
		wait = min(wait, next)
	}
	return wait, nil
}

// watchDeployment judges the allocations of one deployment.
func (s *Server) watchDeployment(id string, now time.Time) (wait time.Duration, err error) {
	wait = idle
	_, err = s.store.Update(func(tx *state.Tx) error {
		d := tx.Deployment(id)
		if d == nil || d.Status != deploymentRunning {
			return nil
		}
		row := tx.Job(d.Namespace, d.JobID)
		if row == nil || !active(d, row.Job) {
			endDeployment(tx, d, deploymentCancelled, describeNewer)
			return nil
		}
		w := &watch{tx: tx, row: row, next: copyDeployment(d), now: now, wait: idle}
		w.judge()
		w.conclude()
		wait = w.wait
		return nil
	})
	return wait, err
}

// watch is one look at a deployment.
type watch struct {
	tx   *state.Tx
	row  *state.Job
	next *api.Deployment
	now  time.Time
	wait time.Duration
	// changed says that an allocation became healthy or not.
	changed bool
}

func (w *watch) judge() {
	allocs := w.tx.JobAllocs(w.next.Namespace, w.next.JobID)
	for name, state := range w.next.TaskGroups {
		g := w.row.Job.LookupTaskGroup(name)
		if g == nil {
			continue
		}
		state.HealthyAllocs, state.UnhealthyAllocs = 0, 0
		for _, a := range allocs {
			if a.DeploymentID != w.next.ID || a.TaskGroup != name {
				continue
			}
			a = w.alloc(a, g.Update, state)
			switch {
			case unhealthy(a), a.ClientStatus == api.AllocClientStatusFailed && !a.ServerTerminalStatus():
				// One that was healthy and failed before the others came up counts too.
				state.UnhealthyAllocs++
			case healthy(a) && scheduler.Live(a):
				state.HealthyAllocs++
			}
		}
	}
}

// alloc decides about one allocation: healthy when its tasks have run for
// min_healthy_time, unhealthy when it failed or missed its deadline.
func (w *watch) alloc(a *api.Allocation, u *api.UpdateStrategy, state *api.DeploymentState) *api.Allocation {
	if a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil || a.ServerTerminalStatus() {
		return a
	}
	deadline := time.Unix(0, a.CreateTime).Add(*u.HealthyDeadline)
	since, runs := runningSince(a)
	var verdict bool
	switch {
	// First what speaks for it: the deadline may have passed while no agent ran.
	case runs && !since.Add(*u.MinHealthyTime).After(w.now):
		verdict = true
		state.RequireProgressBy = w.now.Add(state.ProgressDeadline)
	case a.ClientTerminalStatus() || !deadline.After(w.now):
		verdict = false
	default:
		w.wait = min(w.wait, deadline.Sub(w.now))
		if runs {
			w.wait = min(w.wait, since.Add(*u.MinHealthyTime).Sub(w.now))
		}
		return a
	}
	judged := *a
	judged.DeploymentStatus = &api.AllocDeploymentStatus{Healthy: &verdict, Timestamp: w.now, ModifyIndex: w.tx.Index()}
	w.tx.PutAllocClient(&judged)
	w.changed = true
	return &judged
}

// runningSince is when the last of an allocation's tasks came up.
func runningSince(a *api.Allocation) (since time.Time, ok bool) {
	for _, s := range a.TaskStates {
		if s.State != "running" {
			return since, false
		}
		if s.StartedAt.After(since) {
			since = s.StartedAt
		}
	}
	return since, len(a.TaskStates) > 0
}

// conclude ends the deployment when it is decided, or lets it go on.
func (w *watch) conclude() {
	d, job := w.next, w.row.Job
	complete, late, bad, revert := true, false, false, false
	for _, state := range d.TaskGroups {
		complete = complete && state.HealthyAllocs >= state.DesiredTotal
		bad = bad || state.UnhealthyAllocs > 0
		revert = revert || state.AutoRevert
		if by := state.RequireProgressBy; !by.IsZero() && state.HealthyAllocs < state.DesiredTotal {
			late = late || !by.After(w.now)
			w.wait = min(w.wait, max(by.Sub(w.now), time.Millisecond))
		}
	}
	switch {
	case complete:
		d.Status, d.StatusDescription = deploymentSuccessful, describeSuccessful
		w.markStable()
	case bad && revert:
		d.Status, d.StatusDescription = deploymentFailed, describeUnhealthy
		w.revert()
	case late:
		d.Status, d.StatusDescription = deploymentFailed, describeDeadline
		if revert {
			w.revert()
		}
	case !w.changed:
		return
	}
	w.tx.PutDeployment(d)
	e := newEval(job, triggerDeployment)
	e.DeploymentID = d.ID
	w.tx.PutEval(e)
}

func (w *watch) markStable() {
	next := *w.row
	job := *w.row.Job
	stable, index := true, w.tx.Index()
	job.Stable, job.ModifyIndex = &stable, &index
	next.Job = &job
	w.tx.PutJob(&next)
}

// revert makes the newest stable version the current one again.
func (w *watch) revert() {
	for _, old := range w.row.Versions {
		if old.Stable == nil || !*old.Stable || sameSpec(old, w.row.Job) {
			continue
		}
		job := *spec(old)
		next := nextRow(w.tx, &job, w.row, nil)
		setStatusOf(w.tx, next)
		w.tx.PutJob(next)
		w.next.StatusDescription += fmt.Sprintf(" - rolling back to job version %d", *old.Version)
		w.tx.PutEval(newEval(next.Job, triggerDeployment))
		return
	}
	w.next.StatusDescription += " - no stable job version to auto revert to"
}

// FailDeployment ends a deployment as a user asked.
func (s *Server) FailDeployment(id string) (*api.DeploymentUpdateResponse, error) {
	resp := &api.DeploymentUpdateResponse{}
	index, err := s.store.Update(func(tx *state.Tx) error {
		d := tx.Deployment(id)
		if d == nil {
			return refuse(http.StatusNotFound, "Deployment not found")
		}
		if d.Status != deploymentRunning {
			return refuse(http.StatusInternalServerError, "can't fail terminal deployment")
		}
		endDeployment(tx, d, deploymentFailed, describeByUser)
		if row := tx.Job(d.Namespace, d.JobID); row != nil {
			e := newEval(row.Job, triggerDeployment)
			e.DeploymentID = d.ID
			tx.PutEval(e)
			resp.EvalID = e.ID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.EvalCreateIndex, resp.DeploymentModifyIndex, resp.LastIndex = index, index, index
	return resp, nil
}
