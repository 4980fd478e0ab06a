// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hashicorp/nomad/api"
)

// Registration is a job as Nomad has it, and the evaluation that places it.
type Registration struct {
	Job    *api.Job
	EvalID string
}

// Register gives a job to Nomad if its job modify index is the given one; 0: if there is
// no such job. Nomad's UI shows the rendered job as its source.
func Register(ctx context.Context, c *api.Client, job *api.Job, index uint64) (*Registration, error) {
	source, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return nil, err
	}
	resp, _, err := c.Jobs().RegisterOpts(job, &api.RegisterOptions{
		EnforceIndex: true, ModifyIndex: index, Submission: &api.JobSubmission{Source: string(source), Format: "json"},
	}, (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", *job.ID, err)
	}
	now, _, err := c.Jobs().Info(*job.ID, (&api.QueryOptions{Namespace: *job.Namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", *job.ID, err)
	}
	return &Registration{Job: now, EvalID: resp.EvalID}, nil
}

// Stop ends a job and waits until nothing of it runs. A job that is gone is no error.
func Stop(ctx context.Context, c *api.Client, namespace, jobID string, purge bool) error {
	_, _, err := c.Jobs().Deregister(jobID, purge, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("stop %s: %w", jobID, err)
	}
	return AwaitEnd(ctx, c, namespace, jobID)
}

// AwaitEnd waits until no allocation of a job runs.
func AwaitEnd(ctx context.Context, c *api.Client, namespace, jobID string) error {
	q := &api.QueryOptions{Namespace: namespace, WaitTime: waitTime}
	for {
		all, meta, err := c.Jobs().Allocations(jobID, true, q.WithContext(ctx))
		if err != nil {
			if answer, ok := err.(api.UnexpectedResponseError); ok && answer.StatusCode() == http.StatusNotFound {
				return nil
			}
			return fmt.Errorf("allocations of %s: %w", jobID, err)
		}
		if !anyLive(all) {
			return nil
		}
		q.WaitIndex = meta.LastIndex
	}
}

func anyLive(all []*api.AllocationListStub) bool {
	for _, a := range all {
		if a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending {
			return true
		}
	}
	return false
}
