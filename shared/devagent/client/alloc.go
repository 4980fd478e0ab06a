// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/devagent/taskdir"
)

// allocRunner runs one allocation.
type allocRunner struct {
	client *Client
	id     string
	dir    taskdir.Alloc
	tasks  map[string]*taskRunner
	// records are set before the tasks run.
	records *records
	// kill is closed when the allocation is to stop.
	kill     chan struct{}
	killOnce sync.Once
	// done is closed when the runner has ended: all tasks have, or the agent does.
	done chan struct{}
	// report holds a token when there is something to report.
	report chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	alloc   *api.Allocation
	network *network
	// failure is why the allocation could not be set up, "" if it could.
	failure string
}

func newAllocRunner(c *Client, a *api.Allocation) *allocRunner {
	r := &allocRunner{
		client: c, id: a.ID, alloc: a,
		dir:    taskdir.Alloc{Dir: filepath.Join(c.AllocDir, a.ID)},
		tasks:  map[string]*taskRunner{},
		kill:   make(chan struct{}),
		done:   make(chan struct{}),
		report: make(chan struct{}, 1),
	}
	for _, t := range a.Job.LookupTaskGroup(a.TaskGroup).Tasks {
		r.tasks[t.Name] = newTaskRunner(r, t, a.TaskStates[t.Name])
	}
	return r
}

// update takes a newer value of the allocation.
func (r *allocRunner) update(a *api.Allocation) {
	r.mu.Lock()
	r.alloc = a
	r.mu.Unlock()
	if a.ServerTerminalStatus() {
		r.forget()
	}
}

// forget stops the allocation.
func (r *allocRunner) forget() { r.killOnce.Do(func() { close(r.kill) }) }

func (r *allocRunner) current() *api.Allocation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alloc
}

// run runs all tasks until they have ended, or ctx lets go of them.
func (r *allocRunner) run(ctx context.Context) {
	defer close(r.done)
	reported := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(reported)
		r.reports(stop)
	}()
	defer func() {
		close(stop)
		<-reported
	}()
	if err := r.setUp(ctx); err != nil {
		if ctx.Err() == nil {
			r.fail(err)
		}
		return
	}
	var wg sync.WaitGroup
	for _, t := range r.tasks {
		wg.Go(func() { t.run(ctx) })
	}
	wg.Wait()
	if ctx.Err() == nil {
		r.tearDown()
	}
}

// settle ends what an earlier agent left of an allocation that it had reported as ended: it
// may have died before everything was taken away.
func (r *allocRunner) settle(ctx context.Context) {
	defer close(r.done)
	var err error
	if r.records, err = openRecords(r.client.StateDir, r.id); err != nil {
		r.client.Log.Error("ended allocation not tidied", "alloc", r.id, "error", err)
		return
	}
	for _, t := range r.tasks {
		t.cleanUp(ctx)
	}
	if ctx.Err() != nil {
		return // the next agent goes on with it
	}
	r.mu.Lock()
	r.network = formerNetwork(r.id)
	r.mu.Unlock()
	r.tearDown()
}

// setUp makes what all tasks share.
func (r *allocRunner) setUp(ctx context.Context) error {
	var err error
	if r.records, err = openRecords(r.client.StateDir, r.id); err != nil {
		return err
	}
	if err := r.awaitPrevious(ctx); err != nil {
		return err
	}
	if err := r.dir.Build(); err != nil {
		return err
	}
	return r.joinNetwork(ctx)
}

// awaitPrevious waits until the allocation that this one replaces has ended: two
// must not have one profile.
func (r *allocRunner) awaitPrevious(ctx context.Context) error {
	previous := r.client.runner(r.current().PreviousAllocation)
	if previous == nil {
		return nil
	}
	select {
	case <-previous.done:
		return nil
	case <-r.kill:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail ends an allocation that could not be set up.
func (r *allocRunner) fail(err error) {
	r.mu.Lock()
	r.failure = fmt.Sprintf("failed to setup alloc: %v", err)
	r.mu.Unlock()
	for _, t := range r.tasks {
		t.abandon(eventSetupFailure(r.failure))
	}
	r.leaveNetwork()
}

func (r *allocRunner) tearDown() {
	for _, t := range r.tasks {
		t.stopLogs()
	}
	r.leaveNetwork()
	if err := r.dir.Forget(); err != nil {
		r.client.Log.Warn("secrets of an ended allocation not forgotten", "alloc", r.id, "error", err)
	}
}

// siblingFailed stops the other tasks when one has failed for good.
func (r *allocRunner) siblingFailed(failed string) {
	for _, t := range r.tasks {
		if t.name != failed {
			t.stop(eventSiblingFailed(failed))
		}
	}
}

// changed asks for a report.
func (r *allocRunner) changed() {
	select {
	case r.report <- struct{}{}:
	default:
	}
}

// reports tells the server of every change, the last one too.
func (r *allocRunner) reports(stop <-chan struct{}) {
	for {
		select {
		case <-r.report:
			r.send()
		case <-stop:
			select {
			case <-r.report:
				r.send()
			default:
			}
			return
		}
	}
}

func (r *allocRunner) send() {
	u := server.ClientUpdate{AllocID: r.id, TaskStates: map[string]*api.TaskState{}}
	for name, t := range r.tasks {
		u.TaskStates[name] = t.snapshot()
	}
	u.Status, u.Description = clientStatus(u.TaskStates)
	r.mu.Lock()
	if r.failure != "" {
		u.Description = r.failure
	}
	u.NetworkStatus = r.network.status()
	r.mu.Unlock()
	if err := r.client.Server.UpdateAlloc(u); err != nil {
		r.client.Log.Error("allocation not reported", "alloc", r.id, "error", err)
	}
}

// clientStatus sums up the states of tasks, in Nomad's words.
func clientStatus(states map[string]*api.TaskState) (status, description string) {
	count := map[string]int{}
	for _, s := range states {
		if s.State == taskDead && s.Failed {
			return api.AllocClientStatusFailed, "Failed tasks"
		}
		count[s.State]++
	}
	switch {
	case count[taskRunning] > 0:
		return api.AllocClientStatusRunning, "Tasks are running"
	case count[taskPending] > 0:
		return api.AllocClientStatusPending, "No tasks have started"
	}
	return api.AllocClientStatusComplete, "All tasks have completed"
}

// node gives the node as it is now.
func (c *Client) node() *api.Node {
	var n *api.Node
	c.Store.Read(func(v *state.View) { n = v.Node() })
	return n
}
