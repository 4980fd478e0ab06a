// SPDX-License-Identifier: MPL-2.0

// Package client is what a Nomad client does for one node: it runs the allocations
// that the server decided on, reports how they are, and finds them again after a
// restart of the agent.
package client

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/devagent/taskdir"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// Drivers gives the plugins of this node.
type Drivers interface {
	// Host gives the plugin of a driver, by the name that jobs use.
	Host(driver string) (*host.Host, error)
}

// Config is what a client needs.
type Config struct {
	Store   *state.Store
	Server  *server.Server
	Drivers Drivers
	// AllocDir holds the allocations' directories, StateDir what is needed to find
	// their tasks again.
	AllocDir, StateDir string
	// Logmon is the command of a log collector; see package logmon.
	Logmon []string
	// Host is the agent's environment, which tasks inherit in part.
	Host []string
	Log  hclog.Logger
}

// Client is safe for concurrent use.
type Client struct {
	Config
	// mu guards the rest.
	mu     sync.Mutex
	allocs map[string]*allocRunner
	// early are events of before the first look: the tasks of an earlier agent are not known yet.
	early  []*nomadplugin.TaskEvent
	looked bool
	// count is how many allocations there were, to see that some were forgotten.
	count int
}

// New makes a client. Run does its work.
func New(c Config) (*Client, error) {
	for _, dir := range []string{c.AllocDir, c.StateDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
	}
	if err := os.Chmod(c.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	// The first look sweeps too.
	return &Client{Config: c, allocs: map[string]*allocRunner{}, count: math.MaxInt}, nil
}

// Run runs allocations until ctx is done, and then lets go of them: tasks keep
// running, and the next Run finds them.
func (c *Client) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for {
		changed := c.Store.Changed()
		c.sync(ctx, &wg)
		c.fileEarly()
		select {
		case <-ctx.Done():
			wg.Wait()
			return nil
		case <-changed:
		}
	}
}

// sync makes the runners follow the state.
func (c *Client) sync(ctx context.Context, wg *sync.WaitGroup) {
	var all []*api.Allocation
	c.Store.Read(func(v *state.View) { all = v.Allocs(nil) })
	c.mu.Lock()
	defer c.mu.Unlock()
	present := map[string]bool{}
	for _, a := range all {
		present[a.ID] = true
		r := c.allocs[a.ID]
		if r == nil {
			r = newAllocRunner(c, a)
			c.allocs[a.ID] = r
			run := r.run
			if a.ClientTerminalStatus() {
				run = r.settle // it had ended when this agent began
			}
			wg.Go(func() { run(ctx) })
		}
		r.update(a)
	}
	for id, r := range c.allocs {
		if present[id] {
			continue
		}
		// The allocation is forgotten: stop it should it run, and remove its files.
		delete(c.allocs, id)
		r.forget()
		wg.Go(func() { c.remove(ctx, r) })
	}
	if len(all) < c.count {
		c.sweep(present)
	}
	c.count = len(all)
}

// remove deletes what an allocation left on disk, when all of its tasks have ended.
func (c *Client) remove(ctx context.Context, r *allocRunner) {
	select {
	case <-r.done:
	case <-ctx.Done():
		return
	}
	if err := r.dir.Remove(); err != nil {
		c.Log.Error("allocation directory not removed", "alloc", r.id, "error", err)
		return
	}
	if err := r.records.remove(); err != nil {
		c.Log.Error("task records not removed", "alloc", r.id, "error", err)
	}
}

// sweep removes what is left of allocations that were forgotten when nobody ran them
// any more.
func (c *Client) sweep(present map[string]bool) {
	entries, err := os.ReadDir(c.AllocDir)
	if err != nil {
		c.Log.Error("allocation directories not swept", "error", err)
		return
	}
	for _, e := range entries {
		id := e.Name()
		if present[id] || c.allocs[id] != nil || len(id) != uuidLength {
			continue
		}
		if err := (taskdir.Alloc{Dir: filepath.Join(c.AllocDir, id)}).Remove(); err != nil {
			c.Log.Warn("allocation directory not removed", "alloc", id, "error", err)
			continue
		}
		_ = os.Remove(filepath.Join(c.StateDir, id+".json"))
	}
}

// uuidLength is that of an allocation's id.
const uuidLength = 36

func (c *Client) runner(id string) *allocRunner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allocs[id]
}

// maxEarly bounds the events that wait for the first look; no start of an agent has as many.
const maxEarly = 1000

// keepEarly keeps an event for the first look, if that is still to come.
func (c *Client) keepEarly(e *nomadplugin.TaskEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked || len(c.early) >= maxEarly {
		return false
	}
	c.early = append(c.early, e)
	return true
}

// fileEarly files what came before the first look.
func (c *Client) fileEarly() {
	for {
		c.mu.Lock()
		early := c.early
		c.early, c.looked = nil, len(early) == 0
		c.mu.Unlock()
		if len(early) == 0 {
			return
		}
		for _, e := range early {
			c.file(e)
		}
	}
}

// Event files what a driver says of a task. Unknown tasks are nobody's.
func (c *Client) Event(e *nomadplugin.TaskEvent) {
	if !c.keepEarly(e) {
		c.file(e)
	}
}

func (c *Client) file(e *nomadplugin.TaskEvent) {
	r := c.runner(e.GetAllocId())
	if r == nil {
		c.Log.Warn("event of an unknown allocation", "alloc", e.GetAllocId(), "task", e.GetTaskName())
		return
	}
	if t := r.tasks[e.GetTaskName()]; t != nil {
		t.emit(eventDriver(e))
	}
}

// Error is a refusal with the HTTP status that Nomad would give it.
type Error = server.Error

func refuse(status int, format string, args ...any) error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Task finds a task that runs, for exec, signals and statistics.
func (c *Client) Task(allocID, task string) (*Task, error) {
	r := c.runner(allocID)
	if r == nil {
		return nil, refuse(http.StatusNotFound, "Unknown allocation %q", allocID)
	}
	t := r.tasks[task]
	if t == nil {
		return nil, refuse(http.StatusNotFound, "unknown task name %q", task)
	}
	run := t.running()
	if run == nil {
		s := t.snapshot()
		if s.StartedAt.IsZero() {
			return nil, refuse(http.StatusNotFound, "task %q not started yet.", task)
		}
		return nil, refuse(http.StatusNotFound, "task %q is not running.", task)
	}
	return &Task{Task: run}, nil
}

// Task is a run of a task.
type Task struct{ *host.Task }

// Restart restarts tasks of an allocation: the named one, or all that run, or with
// all those that ended too.
func (c *Client) Restart(allocID, task string, all bool) error {
	r := c.runner(allocID)
	if r == nil {
		return refuse(http.StatusNotFound, "Unknown allocation %q", allocID)
	}
	if task != "" && all {
		return refuse(http.StatusBadRequest, "Can't restart all tasks when task name is set")
	}
	if task != "" {
		t := r.tasks[task]
		if t == nil {
			return refuse(http.StatusNotFound, "Could not find task runner for task: %s", task)
		}
		if t.running() == nil {
			return refuse(http.StatusInternalServerError, "Task not running")
		}
		t.restart("User requested task to restart")
		return nil
	}
	for _, t := range r.sorted() {
		switch {
		case t.running() != nil:
			t.restart("User requested running tasks to restart")
		case all:
			return refuse(http.StatusBadRequest, "task %q has ended: the embedded agent restarts running tasks only", t.name)
		}
	}
	return nil
}

// Signal sends a signal to the named task, or to all that run.
func (c *Client) Signal(ctx context.Context, allocID, task, signal string) error {
	r := c.runner(allocID)
	if r == nil {
		return refuse(http.StatusNotFound, "Unknown allocation %q", allocID)
	}
	tasks := r.sorted()
	if task != "" {
		t := r.tasks[task]
		if t == nil {
			return refuse(http.StatusNotFound, "Task not found")
		}
		tasks = []*taskRunner{t}
	}
	var faults []string
	for _, t := range tasks {
		if err := t.signal(ctx, signal); err != nil {
			faults = append(faults, fmt.Sprintf("Failed to signal task: %s, err: %v", t.name, err))
		}
	}
	if len(faults) > 0 {
		return refuse(http.StatusInternalServerError, "%s", strings.Join(faults, "\n"))
	}
	return nil
}

// Dir gives the directory of an allocation and the states of its tasks.
func (c *Client) Dir(allocID string) (taskdir.Alloc, error) {
	dir := taskdir.Alloc{Dir: filepath.Join(c.AllocDir, allocID)}
	known := false
	c.Store.Read(func(v *state.View) { known = v.Alloc(allocID) != nil })
	if !known {
		return dir, refuse(http.StatusNotFound, "Unknown allocation %q", allocID)
	}
	return dir, nil
}

func (r *allocRunner) sorted() []*taskRunner {
	var out []*taskRunner
	for _, t := range r.tasks {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *taskRunner) int { return strings.Compare(a.name, b.name) })
	return out
}
