// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Status is what a declared screen is doing.
type Status string

// Statuses of a declared screen.
const (
	StatusPending     Status = "pending"
	StatusRunning     Status = "running"
	StatusAsleep      Status = "asleep"
	StatusIdleStopped Status = "idle_stopped"
	StatusStopped     Status = "stopped"
	StatusFailed      Status = "failed"
	StatusLost        Status = "lost"
)

// Statuses lists them all.
var Statuses = []Status{StatusPending, StatusRunning, StatusAsleep, StatusIdleStopped, StatusStopped, StatusFailed, StatusLost}

// reasonIdle begins the driver's reason for an end that nobody asked for but the idle clock.
const reasonIdle = "not used for "

// Declared is a screen's job with its newest allocation.
type Declared struct {
	Job    *api.Job
	Screen Screen
	Status Status
	// LeaseSince is when the present lease was first seen, as far back as Nomad keeps events.
	LeaseSince time.Time
	// ViewerURL is where the screen's viewer listener is while it runs; empty where it has none.
	ViewerURL string
}

// Lookup reads the job of a screen and its newest allocation: two requests, and one more
// where it has a viewer listener.
func Lookup(ctx context.Context, c *api.Client, namespace, jobID string) (*Declared, error) {
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	job, _, err := c.Jobs().Info(jobID, q)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", jobID, err)
	}
	all, _, err := c.Jobs().Allocations(jobID, false, q)
	if err != nil {
		return nil, fmt.Errorf("allocations of %s: %w", jobID, err)
	}
	d := &Declared{Job: job}
	var newest *api.AllocationListStub
	for _, a := range all {
		if newest == nil || a.CreateIndex > newest.CreateIndex {
			newest = a
		}
	}
	if newest != nil {
		state := stateOf(newest)
		d.Screen, _ = fromTask(newest, TaskName, state)
		d.LeaseSince = leaseSince(state)
	}
	d.Status = statusOf(job, newest, d.Screen)
	if newest == nil || !d.Screen.Live() || !IsScreen(job) || blockOf(job.TaskGroups[0].Tasks[0].Config["viewer"]) == nil {
		return d, nil
	}
	whole, _, err := c.Allocations().Info(newest.ID, q)
	if err != nil {
		return nil, fmt.Errorf("allocation %s: %w", short(newest.ID), err)
	}
	d.ViewerURL = viewerURL(job, whole)
	return d, nil
}

func statusOf(job *api.Job, a *api.AllocationListStub, s Screen) Status {
	switch {
	case job.Stop != nil && *job.Stop:
		return StatusStopped
	case a == nil:
		return StatusPending
	}
	switch a.ClientStatus {
	case api.AllocClientStatusFailed:
		return StatusFailed
	case api.AllocClientStatusLost, api.AllocClientStatusUnknown:
		return StatusLost
	case api.AllocClientStatusComplete:
		if s.idledOut() {
			return StatusIdleStopped
		}
		return StatusStopped
	}
	switch {
	case s.State == "ready":
		return StatusRunning
	case s.Usable():
		return StatusAsleep
	}
	return StatusPending
}

// idledOut says whether the screen ended because nobody used it.
func (s Screen) idledOut() bool { return strings.HasPrefix(s.Reason.String(), reasonIdle) }

// leaseSince is the time of the oldest kept event with the epoch of the newest one.
func leaseSince(state *api.TaskState) time.Time {
	var epoch uint64
	var since time.Time
	for _, e := range state.Events {
		n, err := strconv.ParseUint(e.Details[annotationEpoch], 10, 64)
		if err != nil {
			continue
		}
		if n != epoch {
			epoch, since = n, time.Unix(0, e.Time)
		}
	}
	return since
}

// IsScreen says whether a job is one that Render could have made or could take over: its
// one group has one task, a screen.
func IsScreen(job *api.Job) bool {
	return len(job.TaskGroups) == 1 && len(job.TaskGroups[0].Tasks) == 1 && job.TaskGroups[0].Tasks[0].Driver == Driver
}

// Held says whether a person has the screen.
func (d *Declared) Held() bool { return d.Screen.Live() && d.Screen.Holder == "human" }

// DeclaredStub is what lists tell of a declared screen.
type DeclaredStub struct {
	Job    *api.JobListStub
	Screen Screen
	Status Status
}

// ListDeclared finds the jobs of declared screens in a namespace, with their newest
// allocations: two requests, however many there are.
func ListDeclared(ctx context.Context, c *api.Client, namespace string) ([]DeclaredStub, error) {
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	jobs, _, err := c.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	q.Params = map[string]string{"task_states": "true"}
	allocs, _, err := c.Allocations().List(q)
	if err != nil {
		return nil, fmt.Errorf("list allocations: %w", err)
	}
	newest := map[string]*api.AllocationListStub{}
	for _, a := range allocs {
		if old := newest[a.JobID]; old == nil || a.CreateIndex > old.CreateIndex {
			newest[a.JobID] = a
		}
	}
	var out []DeclaredStub
	for _, job := range jobs {
		if job.Meta[MetaName] == "" {
			continue
		}
		one := DeclaredStub{Job: job}
		a := newest[job.ID]
		if a != nil {
			one.Screen, _ = fromTask(a, TaskName, stateOf(a))
		}
		one.Status = statusOf(&api.Job{Stop: &job.Stop}, a, one.Screen)
		out = append(out, one)
	}
	return out, nil
}
