// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Generation is a word that no earlier one of a job is like.
func Generation() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

// Restart registers a screen's job in another generation, so that its desktop starts anew;
// Await follows it. The job must still be as it was found, as with Register.
func Restart(ctx context.Context, c *api.Client, found *api.Job, reason string) (*Registration, error) {
	return again(ctx, c, found, reason, false)
}

// Halt registers a screen's job as stopped and leaves it there; AwaitEnd waits for the end.
// The job must still be as it was found, as with Register.
func Halt(ctx context.Context, c *api.Client, found *api.Job, reason string) error {
	_, err := again(ctx, c, found, reason, true)
	return err
}

func again(ctx context.Context, c *api.Client, found *api.Job, reason string, stop bool) (*Registration, error) {
	job := *found
	job.Stop = &stop
	job.Meta = maps.Clone(found.Meta)
	if job.Meta == nil {
		job.Meta = map[string]string{}
	}
	job.Meta[MetaGeneration] = Generation()
	if job.Meta[MetaReason] = reason; reason == "" {
		delete(job.Meta, MetaReason)
	}
	return Register(ctx, c, &job, *found.JobModifyIndex)
}
