// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"encoding/json"
	"fmt"

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
