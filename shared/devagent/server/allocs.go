// SPDX-License-Identifier: MPL-2.0

package server

import (
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
)

// ClientUpdate is what a client reports of an allocation.
type ClientUpdate struct {
	AllocID       string
	Status        string
	Description   string
	TaskStates    map[string]*api.TaskState
	NetworkStatus *api.AllocNetworkStatus
}

// UpdateAlloc takes a client's report. An allocation that ended makes another
// evaluation of its job.
func (s *Server) UpdateAlloc(u ClientUpdate) error {
	_, err := s.store.Update(func(tx *state.Tx) error {
		old := tx.Alloc(u.AllocID)
		if old == nil {
			return nil
		}
		a := *old
		a.ClientStatus, a.ClientDescription = u.Status, u.Description
		a.TaskStates, a.NetworkStatus = u.TaskStates, u.NetworkStatus
		tx.PutAllocClient(&a)
		row := tx.Job(a.Namespace, a.JobID)
		if row == nil {
			return nil
		}
		if a.ClientTerminalStatus() && !old.ClientTerminalStatus() && !a.ServerTerminalStatus() {
			trigger := triggerFailed
			if a.ClientStatus != api.AllocClientStatusFailed {
				trigger = triggerStop
			}
			tx.PutEval(newEval(row.Job, trigger))
			return nil
		}
		refreshStatus(tx, row, &a)
		return nil
	})
	return err
}

// refreshStatus writes the state of a job after one of its allocations changed.
func refreshStatus(tx *state.Tx, row *state.Job, changed *api.Allocation) {
	allocs := tx.JobAllocs(changed.Namespace, changed.JobID)
	for i := range allocs {
		if allocs[i].ID == changed.ID {
			allocs[i] = changed
		}
	}
	setStatus(tx, row, jobStatus(row.Job, tx.JobEvals(changed.Namespace, changed.JobID), allocs))
}

// StopAlloc stops one allocation; its job gets another one in its place.
func (s *Server) StopAlloc(id string) (*api.AllocStopResponse, error) {
	resp := &api.AllocStopResponse{}
	index, err := s.store.Update(func(tx *state.Tx) error {
		old := tx.Alloc(id)
		if old == nil {
			return refuse(http.StatusNotFound, "alloc not found")
		}
		row := tx.Job(old.Namespace, old.JobID)
		if row == nil {
			return refuse(http.StatusNotFound, "job not found")
		}
		a := *old
		migrate := true
		a.DesiredTransition.Migrate = &migrate
		tx.PutAlloc(&a)
		e := newEval(row.Job, triggerStop)
		tx.PutEval(e)
		resp.EvalID = e.ID
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.LastIndex = index
	return resp, nil
}
