// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"
)

// askTimeout is how long a node may take to say whether it has an allocation.
const askTimeout = 10 * time.Second

// Stop ends a job and waits until nothing of it runs; with purge Nomad forgets it then. Not
// before: Nomad forgets the allocations of a job with it, at once, though they still run,
// and there would be nothing left to wait for. A job that is gone is no error.
func Stop(ctx context.Context, c *api.Client, namespace, jobID string, purge bool) error {
	if err := deregister(ctx, c, namespace, jobID, false); err != nil {
		return err
	}
	if err := AwaitEnd(ctx, c, namespace, jobID); err != nil || !purge {
		return err
	}
	return deregister(ctx, c, namespace, jobID, true)
}

func deregister(ctx context.Context, c *api.Client, namespace, jobID string, purge bool) error {
	if _, _, err := c.Jobs().Deregister(jobID, purge, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx)); err != nil {
		return fmt.Errorf("stop %s: %w", jobID, err)
	}
	return nil
}

// AwaitEnd waits until no allocation of a job runs, as far as its nodes can be reached: one
// that was lost counts while its node, which is back, still has to end it.
func AwaitEnd(ctx context.Context, c *api.Client, namespace, jobID string) error {
	q := &api.QueryOptions{Namespace: namespace, WaitTime: waitTime}
	for {
		all, meta, err := c.Jobs().Allocations(jobID, true, q.WithContext(ctx))
		if err != nil {
			if statusOfError(err) == http.StatusNotFound {
				return nil
			}
			return fmt.Errorf("allocations of %s: %w", jobID, err)
		}
		live, err := anyLive(ctx, c, namespace, all)
		if err != nil || !live {
			return err
		}
		q.WaitIndex = meta.LastIndex
	}
}

func statusOfError(err error) int {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode()
	}
	return 0
}

func anyLive(ctx context.Context, c *api.Client, namespace string, all []*api.AllocationListStub) (bool, error) {
	for _, a := range all {
		switch a.ClientStatus {
		case api.AllocClientStatusRunning, api.AllocClientStatusPending:
			return true, nil
		case api.AllocClientStatusLost, api.AllocClientStatusUnknown:
			if still, err := onItsNode(ctx, c, namespace, a.ID); still || err != nil {
				return still, err
			}
		}
	}
	return false, nil
}

// onItsNode asks the node of a lost allocation whether it has it. A node that has will tell
// the servers what became of it; one that does not answer is away, and nobody can wait for
// it. It is asked for the allocation's numbers, which takes no right on nodes.
func onItsNode(ctx context.Context, c *api.Client, namespace, alloc string) (bool, error) {
	soon, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.Allocations().Stats(&api.Allocation{ID: alloc}, (&api.QueryOptions{Namespace: namespace}).WithContext(soon))
	if ctx.Err() != nil {
		return false, fmt.Errorf("allocation %s: %w", short(alloc), ctx.Err())
	}
	return err == nil, nil
}
