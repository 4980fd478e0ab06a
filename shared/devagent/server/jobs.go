// SPDX-License-Identifier: MPL-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
)

// trackedVersions is how many versions of a job are kept, as in Nomad.
const trackedVersions = 6

// Register stores a job and evaluates it. An unchanged job keeps its version.
func (s *Server) Register(req *api.JobRegisterRequest) (*api.JobRegisterResponse, error) {
	job, err := s.admit(req.Job)
	if err != nil {
		return nil, err
	}
	resp := &api.JobRegisterResponse{}
	index, err := s.store.Update(func(tx *state.Tx) error {
		row := tx.Job(*job.Namespace, *job.ID)
		if err := enforce(req, row); err != nil {
			return err
		}
		if req.PreserveCounts {
			preserveCounts(job, row)
		}
		next := nextRow(tx, job, row, req.Submission)
		e := newEval(next.Job, triggerRegister)
		e.JobModifyIndex = *next.Job.JobModifyIndex
		if req.EvalPriority > 0 {
			e.Priority = req.EvalPriority
		}
		tx.PutEval(e)
		setStatusOf(tx, next)
		tx.PutJob(next)
		resp.EvalID, resp.JobModifyIndex = e.ID, *next.Job.JobModifyIndex
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.EvalCreateIndex, resp.LastIndex = index, index
	return resp, nil
}

// admit checks a submitted job and fills its defaults.
func (s *Server) admit(job *api.Job) (*api.Job, error) {
	if job == nil {
		return nil, refuse(http.StatusBadRequest, "Job must be specified")
	}
	job, err := clone(job)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if faults := unsupported(job); len(faults) > 0 {
		return nil, refuse(http.StatusInternalServerError, "%s", faultList(faults))
	}
	fill(job)
	if faults := validate(job); len(faults) > 0 {
		return nil, refuse(http.StatusInternalServerError, "%s", faultList(faults))
	}
	return job, nil
}

// fill writes the defaults into a job: those of the API's client, and those that only
// servers know.
func fill(job *api.Job) {
	job.Canonicalize()
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
	if job.NodePool == nil || *job.NodePool == "" {
		pool := "default"
		job.NodePool = &pool
	}
}

func clone(job *api.Job) (*api.Job, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var out api.Job
	return &out, json.Unmarshal(text, &out)
}

// enforce compares the index that the submitter saw, under the store's turn: it is
// a real compare-and-set.
func enforce(req *api.JobRegisterRequest, row *state.Job) error {
	if !req.EnforceIndex {
		return nil
	}
	switch {
	case row != nil && req.JobModifyIndex == 0:
		return refuse(http.StatusInternalServerError, "%s 0: job already exists", api.RegisterEnforceIndexErrPrefix)
	case row != nil && req.JobModifyIndex != *row.Job.JobModifyIndex:
		return refuse(http.StatusInternalServerError, "%s %d: job exists with conflicting job modify index: %d",
			api.RegisterEnforceIndexErrPrefix, req.JobModifyIndex, *row.Job.JobModifyIndex)
	case row == nil && req.JobModifyIndex != 0:
		return refuse(http.StatusInternalServerError, "%s %d: job does not exist", api.RegisterEnforceIndexErrPrefix, req.JobModifyIndex)
	}
	return nil
}

func preserveCounts(job *api.Job, row *state.Job) {
	if row == nil {
		return
	}
	for _, g := range job.TaskGroups {
		if old := row.Job.LookupTaskGroup(*g.Name); old != nil {
			g.Count = old.Count
		}
	}
}

// nextRow is the job's row with the submitted version in it.
func nextRow(tx *state.Tx, job *api.Job, row *state.Job, source *api.JobSubmission) *state.Job {
	index, now, version := tx.Index(), time.Now().UnixNano(), uint64(0)
	next := &state.Job{Job: job, Submissions: map[uint64]*api.JobSubmission{}}
	job.CreateIndex, job.ModifyIndex, job.JobModifyIndex = &index, &index, &index
	if row != nil {
		old := row.Job
		job.CreateIndex = old.CreateIndex
		next.Versions = row.Versions
		for v, s := range row.Submissions {
			next.Submissions[v] = s
		}
		version = *old.Version
		if sameSpec(old, job) {
			job.JobModifyIndex, job.Stable = old.JobModifyIndex, old.Stable
			job.SubmitTime = old.SubmitTime
		} else {
			version++
			next.Versions = append([]*api.Job{old}, next.Versions...)
			next.Versions = next.Versions[:min(len(next.Versions), trackedVersions-1)]
		}
	}
	if job.SubmitTime == nil || *job.SubmitTime == 0 || row == nil || version != *row.Job.Version {
		job.SubmitTime = &now
	}
	job.Version = &version
	if source != nil && source.Source != "" {
		next.Submissions[version] = source
	}
	return next
}

// sameSpec compares what a submitter writes, not what the server adds.
func sameSpec(a, b *api.Job) bool {
	left, errLeft := json.Marshal(spec(a))
	right, errRight := json.Marshal(spec(b))
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

func spec(j *api.Job) *api.Job {
	out := *j
	out.Status, out.StatusDescription, out.Stable, out.Version, out.SubmitTime = nil, nil, nil, nil, nil
	out.CreateIndex, out.ModifyIndex, out.JobModifyIndex, out.VersionTag, out.NomadTokenID = nil, nil, nil, nil, nil
	return &out
}

// setStatusOf fills the state of a job that gets a new evaluation.
func setStatusOf(tx *state.Tx, row *state.Job) {
	status := jobStatus(row.Job, []*api.Evaluation{{Status: statusPending}}, tx.JobAllocs(*row.Job.Namespace, *row.Job.ID))
	row.Job.Status = &status
	empty := ""
	row.Job.StatusDescription = &empty
}

// Deregister stops a job, and forgets it with purge. A job that is already gone is
// a success without an evaluation, as in Nomad.
func (s *Server) Deregister(namespace, id string, purge bool) (*api.JobDeregisterResponse, error) {
	resp := &api.JobDeregisterResponse{}
	index, err := s.store.Update(func(tx *state.Tx) error {
		row := tx.Job(namespace, id)
		if row == nil {
			return nil
		}
		e := newEval(row.Job, triggerDeregister)
		e.JobModifyIndex = tx.Index()
		tx.PutEval(e)
		stopDeployment(tx, row)
		if purge {
			tx.DeleteJob(namespace, id)
		} else {
			tx.PutJob(stopped(tx, row))
		}
		resp.EvalID, resp.EvalCreateIndex, resp.JobModifyIndex = e.ID, tx.Index(), tx.Index()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if resp.EvalID != "" {
		resp.LastIndex = index
	}
	return resp, nil
}

// stopped is a job's row with a version that is stopped.
func stopped(tx *state.Tx, row *state.Job) *state.Job {
	next := *row
	job := *row.Job
	stop, index := true, tx.Index()
	if job.Stop == nil || !*job.Stop {
		version := *job.Version + 1
		next.Versions = append([]*api.Job{row.Job}, row.Versions...)
		next.Versions = next.Versions[:min(len(next.Versions), trackedVersions-1)]
		job.Version = &version
	}
	job.Stop, job.ModifyIndex, job.JobModifyIndex = &stop, &index, &index
	status := jobStatus(&job, nil, tx.JobAllocs(*job.Namespace, *job.ID))
	job.Status = &status
	next.Job = &job
	return &next
}

// Evaluate makes another evaluation of a job.
func (s *Server) Evaluate(namespace, id string, force bool) (*api.JobRegisterResponse, error) {
	resp := &api.JobRegisterResponse{}
	index, err := s.store.Update(func(tx *state.Tx) error {
		row := tx.Job(namespace, id)
		if row == nil {
			return refuse(http.StatusNotFound, "job not found")
		}
		if force {
			yes := true
			for _, a := range tx.JobAllocs(namespace, id) {
				if a.ClientStatus == api.AllocClientStatusFailed && a.NextAllocation == "" && !a.ServerTerminalStatus() {
					forced := *a
					forced.DesiredTransition.ForceReschedule = &yes
					tx.PutAlloc(&forced)
				}
			}
		}
		e := newEval(row.Job, triggerRegister)
		e.JobModifyIndex = *row.Job.JobModifyIndex
		tx.PutEval(e)
		resp.EvalID, resp.JobModifyIndex = e.ID, *row.Job.JobModifyIndex
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.EvalCreateIndex, resp.LastIndex = index, index
	return resp, nil
}

// Revert makes an earlier version the newest one.
func (s *Server) Revert(namespace, id string, version uint64, prior *uint64) (*api.JobRegisterResponse, error) {
	var old *api.Job
	var err error
	s.store.Read(func(v *state.View) {
		row := v.Job(namespace, id)
		switch {
		case row == nil:
			err = refuse(http.StatusNotFound, "job not found")
		case *row.Job.Version == version:
			err = refuse(http.StatusInternalServerError, "can't revert to current version")
		case prior != nil && *prior != *row.Job.Version:
			err = refuse(http.StatusInternalServerError, "Current job has version %d; enforcing version %d", *row.Job.Version, *prior)
		default:
			old = v.JobVersion(namespace, id, version)
			if old == nil {
				err = refuse(http.StatusInternalServerError, "job %q in namespace %q at version %d not found", id, namespace, version)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	job := *spec(old)
	stop := false
	job.Stop = &stop
	return s.Register(&api.JobRegisterRequest{Job: &job})
}

// faultList writes faults the way Nomad's servers do.
func faultList(faults []string) string {
	word := "errors"
	if len(faults) == 1 {
		word = "error"
	}
	text := fmt.Sprintf("%d %s occurred:\n", len(faults), word)
	for _, f := range faults {
		text += "\t* " + f + "\n"
	}
	return text + "\n"
}
