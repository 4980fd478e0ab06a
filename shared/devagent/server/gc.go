// SPDX-License-Identifier: MPL-2.0

package server

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
)

// How long what has ended is kept.
const (
	allocAge = time.Hour
	jobAge   = 4 * time.Hour
)

// CollectGarbage forgets what ended long ago: dead jobs, and allocations and
// evaluations that nobody needs. force forgets it whatever its age.
func (s *Server) CollectGarbage(now time.Time, force bool) error {
	old := func(nanos int64, age time.Duration) bool {
		return force || now.Sub(time.Unix(0, nanos)) > age
	}
	_, err := s.store.Update(func(tx *state.Tx) error {
		for _, row := range tx.Jobs(state.AnyNamespace, "") {
			if s.deadJob(tx, row) && old(*row.Job.SubmitTime, jobAge) && s.settled(tx, row, old) {
				tx.DeleteJob(*row.Job.Namespace, *row.Job.ID)
			}
		}
		for _, a := range tx.Allocs(nil) {
			if collectable(tx, a) && old(a.ModifyTime, allocAge) {
				tx.DeleteAlloc(a.ID)
			}
		}
		for _, e := range tx.Evals(nil) {
			if !waiting(e) && old(e.ModifyTime, allocAge) && !referenced(tx, e) {
				tx.DeleteEval(e.ID)
			}
		}
		for _, d := range tx.Deployments(func(d *api.Deployment) bool { return d.Status != deploymentRunning }) {
			row := tx.Job(d.Namespace, d.JobID)
			if old(d.ModifyTime, allocAge) && (row == nil || *row.Job.Version != d.JobVersion) {
				tx.DeleteDeployment(d.ID)
			}
		}
		return nil
	})
	return err
}

func (s *Server) deadJob(tx *state.Tx, row *state.Job) bool {
	return row.Job.Status != nil && *row.Job.Status == jobDead
}

func (s *Server) settled(tx *state.Tx, row *state.Job, old func(int64, time.Duration) bool) bool {
	for _, a := range tx.JobAllocs(*row.Job.Namespace, *row.Job.ID) {
		if !a.ClientTerminalStatus() || !old(a.ModifyTime, allocAge) {
			return false
		}
	}
	for _, e := range tx.JobEvals(*row.Job.Namespace, *row.Job.ID) {
		if waiting(e) {
			return false
		}
	}
	return true
}

// collectable says whether an allocation ended for good: its job is gone or stopped,
// or another allocation is in its place.
func collectable(tx *state.Tx, a *api.Allocation) bool {
	if !a.ClientTerminalStatus() {
		return false
	}
	row := tx.Job(a.Namespace, a.JobID)
	return row == nil || a.ServerTerminalStatus() || row.Job.Stop != nil && *row.Job.Stop
}

// referenced says whether an allocation or a waiting evaluation points to e.
func referenced(tx *state.Tx, e *api.Evaluation) bool {
	for _, a := range tx.Allocs(nil) {
		if a.EvalID == e.ID && !a.ClientTerminalStatus() {
			return true
		}
	}
	for _, o := range tx.Evals(waiting) {
		if o.PreviousEval == e.ID {
			return true
		}
	}
	return false
}
