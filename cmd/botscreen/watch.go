// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

var errTimeout = errors.New("the time is up")

// watcher follows a job that was submitted until its screens are ready.
type watcher struct {
	c      *cli
	ctx    context.Context
	client *api.Client
	job    *api.Job
	// shown is, per allocation and task, the time of the newest event that was shown.
	shown map[string]int64
}

// wait returns the allocations once every screen is ready and every other task runs.
func (w *watcher) wait(evalID string) ([]*api.AllocationListStub, error) {
	if err := w.placed(evalID); err != nil {
		return nil, err
	}
	q := &api.QueryOptions{Namespace: *w.job.Namespace, WaitTime: 30 * time.Second}
	for {
		all, meta, err := w.client.Jobs().Allocations(*w.job.ID, false, q.WithContext(w.ctx))
		if err != nil {
			return nil, w.broken(err)
		}
		mine := w.current(all)
		for _, a := range mine {
			w.show(a)
			if a.ClientStatus == api.AllocClientStatusFailed || a.ClientStatus == api.AllocClientStatusLost {
				return nil, w.failed(a)
			}
		}
		if len(mine) >= w.wanted() && !slices.ContainsFunc(mine, func(a *api.AllocationListStub) bool { return !w.ready(a) }) {
			return mine, nil
		}
		q.WaitIndex = meta.LastIndex
	}
}

// broken says why a wait ended.
func (w *watcher) broken(err error) error {
	if errors.Is(context.Cause(w.ctx), errTimeout) {
		return failf(exitNotReady, "The screens of job %s are not ready in time. The job goes on: see `botscreen status %s`.", line(*w.job.ID), line(*w.job.ID))
	}
	return w.c.nomadError(err)
}

// placed waits for the evaluation and tells why something could not be placed.
func (w *watcher) placed(evalID string) error {
	q := &api.QueryOptions{Namespace: *w.job.Namespace, WaitTime: 30 * time.Second}
	for evalID != "" {
		e, meta, err := w.client.Evaluations().Info(evalID, q.WithContext(w.ctx))
		if err != nil {
			return w.broken(err)
		}
		switch e.Status {
		case "complete", "failed", "canceled":
			if len(e.FailedTGAllocs) > 0 {
				return failf(exitNotReady, "There is no node for job %s now; it stays submitted and starts when there is one.\n%s",
					line(*w.job.ID), placementFailures(e.FailedTGAllocs))
			}
			return nil
		}
		q.WaitIndex = meta.LastIndex
	}
	return nil
}

// placementFailures says why groups could not be placed, in Nomad's words.
func placementFailures(failed map[string]*api.AllocationMetric) string {
	var b strings.Builder
	for _, group := range slices.Sorted(maps.Keys(failed)) {
		fmt.Fprintf(&b, "Group %q:\n", line(group))
		for _, reason := range placementReasons(failed[group]) {
			fmt.Fprintf(&b, "  * %s\n", reason)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func placementReasons(m *api.AllocationMetric) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, line(fmt.Sprintf(format, args...))) }
	if m.NodesEvaluated == 0 {
		add("No nodes were eligible for evaluation")
	}
	for _, dc := range slices.Sorted(maps.Keys(m.NodesAvailable)) {
		if m.NodesAvailable[dc] == 0 {
			add("No nodes are available in datacenter %q", dc)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(m.ClassFiltered)) {
		add("Class %q: %d nodes excluded by filter", class, m.ClassFiltered[class])
	}
	for _, constraint := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
		add("Constraint %q: %d nodes excluded by filter", constraint, m.ConstraintFiltered[constraint])
	}
	if m.NodesExhausted > 0 {
		add("Resources exhausted on %d nodes", m.NodesExhausted)
	}
	for _, dimension := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
		add("Dimension %q exhausted on %d nodes", dimension, m.DimensionExhausted[dimension])
	}
	for _, quota := range m.QuotaExhausted {
		add("Quota limit hit %q", quota)
	}
	return out
}

// wanted is how many allocations the job is to have.
func (w *watcher) wanted() int {
	n := 0
	for _, g := range w.job.TaskGroups {
		n += *g.Count
	}
	return n
}

// current are the allocations of the newest version of the job that are to run.
func (w *watcher) current(all []*api.AllocationListStub) []*api.AllocationListStub {
	var newest uint64
	for _, a := range all {
		newest = max(newest, a.JobVersion)
	}
	return slices.DeleteFunc(all, func(a *api.AllocationListStub) bool {
		return a.JobVersion != newest || a.DesiredStatus != api.AllocDesiredStatusRun
	})
}

// ready says whether all tasks of an allocation are: a screen by the event of its
// driver, any other task by running or having ended well.
func (w *watcher) ready(a *api.AllocationListStub) bool {
	tasks := w.tasks(a.TaskGroup)
	if len(a.TaskStates) < len(tasks) {
		return false
	}
	for name, s := range a.TaskStates {
		if tasks[name] == nomadjob.Driver && s.State == "running" {
			if !screenReady(s) {
				return false
			}
			continue
		}
		if s.State != "running" && (s.State != "dead" || s.Failed) {
			return false
		}
	}
	return true
}

// screenReady says whether the newest word of the driver is that the screen may be
// used.
func screenReady(s *api.TaskState) bool {
	for _, e := range slices.Backward(s.Events) {
		switch state := screen.State(e.Details["botscreen.state"]); state {
		case "":
		case screen.Ready, screen.Asleep, screen.Frozen:
			return true
		default:
			return false
		}
	}
	return false
}

func (w *watcher) tasks(group string) map[string]string {
	out := map[string]string{}
	for _, g := range w.job.TaskGroups {
		if *g.Name == group {
			for _, t := range g.Tasks {
				out[t.Name] = t.Driver
			}
		}
	}
	return out
}

// show prints the events that are new.
func (w *watcher) show(a *api.AllocationListStub) {
	for _, task := range slices.Sorted(maps.Keys(a.TaskStates)) {
		key := a.ID + "/" + task
		for _, e := range a.TaskStates[task].Events {
			if e.Time > w.shown[key] {
				w.shown[key] = e.Time
				w.c.say("%s", eventLine(task, e))
			}
		}
	}
}

func eventLine(task string, e *api.TaskEvent) string {
	return fmt.Sprintf("%s  %s  %s: %s", time.Unix(0, e.Time).Format("15:04:05"), line(task), line(e.Type), line(e.DisplayMessage))
}

// failed tells of an allocation that did not come up, with its last events.
func (w *watcher) failed(a *api.AllocationListStub) error {
	var b strings.Builder
	for _, task := range slices.Sorted(maps.Keys(a.TaskStates)) {
		events := a.TaskStates[task].Events
		for _, e := range events[max(0, len(events)-5):] {
			fmt.Fprintf(&b, "\n  %s", eventLine(task, e))
		}
	}
	return failf(exitNotReady, "Job %s did not come up: %s. The last events of allocation %s:%s\nMore: botscreen logs %s",
		line(a.JobID), line(or(a.ClientDescription, a.ClientStatus)), a.ID[:8], b.String(), a.ID[:8])
}
