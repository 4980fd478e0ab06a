// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/screen"
)

// Driver is the driver of a task that is a screen.
const Driver = "botscreen"

// Annotations of a screen's task events (wire.md section 4). Nomad keeps the last ten
// events of a task, so each carries all of them.
const (
	annotationState     = "botscreen.state"
	annotationEvent     = "botscreen.event"
	annotationProfile   = "botscreen.profile"
	annotationIsolation = "botscreen.isolation"
	annotationDigest    = "botscreen.image_digest"
	annotationHolder    = "botscreen.holder"
	annotationEpoch     = "botscreen.epoch"
	annotationFence     = "botscreen.fence"
	annotationReason    = "botscreen.reason"
)

// Screen is one task of the driver, as Nomad knows it.
type Screen struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Group     string `json:"group"`
	Task      string `json:"task"`
	Alloc     string `json:"alloc"`
	NodeID    string `json:"node_id"`
	Node      string `json:"node"`
	// Desired and Client are the allocation's states in Nomad's words.
	Desired string `json:"desired_status"`
	Client  string `json:"client_status"`
	// TaskState is Nomad's state of the task: pending, running, dead.
	TaskState string `json:"task_state"`
	Failed    bool   `json:"failed,omitempty"`
	Restarts  uint64 `json:"restarts,omitempty"`

	// What follows is from the newest event of the driver; empty before the first.
	Profile     screen.Untrusted `json:"profile,omitzero"`
	State       screen.State     `json:"state,omitempty"`
	Event       string           `json:"event,omitempty"`
	Isolation   string           `json:"isolation,omitempty"`
	ImageDigest string           `json:"image_digest,omitempty"`
	Holder      string           `json:"holder,omitempty"`
	Epoch       uint64           `json:"epoch,omitempty"`
	Fence       string           `json:"fence,omitempty"`
	Reason      screen.Untrusted `json:"reason,omitzero"`
	Since       time.Time        `json:"since,omitzero"`
	// Last is the newest event of any kind, in words.
	Last screen.Untrusted `json:"last_event,omitzero"`

	created uint64
	name    string
}

// Live says whether the screen's allocation may still run.
func (s Screen) Live() bool {
	return s.Desired == api.AllocDesiredStatusRun && s.Client != api.AllocClientStatusComplete &&
		s.Client != api.AllocClientStatusFailed && s.Client != api.AllocClientStatusLost
}

// Path is job/group/task.
func (s Screen) Path() string { return s.Job + "/" + s.Group + "/" + s.Task }

// fromTask reads one task of an allocation. known is false while the driver has said
// nothing: then only the job tells whether it is a screen.
func fromTask(a *api.AllocationListStub, task string, state *api.TaskState) (s Screen, known bool) {
	s = Screen{
		Namespace: a.Namespace, Job: a.JobID, Group: a.TaskGroup, Task: task, Alloc: a.ID, NodeID: a.NodeID, Node: a.NodeName,
		Desired: a.DesiredStatus, Client: a.ClientStatus, TaskState: state.State, Failed: state.Failed, Restarts: state.Restarts,
		created: a.CreateIndex, name: a.Name,
	}
	for _, e := range slices.Backward(state.Events) {
		if s.Last == (screen.Untrusted{}) {
			s.Last = screen.Distrust(e.Type + ": " + e.DisplayMessage)
		}
		if e.Details[annotationState] == "" {
			continue
		}
		s.annotate(e)
		return s, true
	}
	return s, false
}

func (s *Screen) annotate(e *api.TaskEvent) {
	clean := func(name string) string { return screen.Distrust(e.Details[name]).String() }
	s.State = screen.State(clean(annotationState))
	s.Event = clean(annotationEvent)
	s.Profile = screen.Distrust(e.Details[annotationProfile])
	s.Isolation = clean(annotationIsolation)
	s.ImageDigest = clean(annotationDigest)
	s.Holder = clean(annotationHolder)
	s.Epoch, _ = strconv.ParseUint(e.Details[annotationEpoch], 10, 64)
	s.Fence = clean(annotationFence)
	s.Reason = screen.Distrust(e.Details[annotationReason])
	s.Since = time.Unix(0, e.Time)
}

// List finds all screens of a namespace ("*": of all, "": the client's), the newest
// allocation of each; screens that ended and were replaced are left out.
func List(ctx context.Context, c *api.Client, namespace string) ([]Screen, error) {
	q := (&api.QueryOptions{Namespace: namespace, Params: map[string]string{"task_states": "true"}}).WithContext(ctx)
	allocs, _, err := c.Allocations().List(q)
	if err != nil {
		return nil, fmt.Errorf("list allocations: %w", err)
	}
	l := &lister{ctx: ctx, client: c, drivers: map[string]map[string]string{}}
	var found []Screen
	for _, a := range allocs {
		for task, state := range a.TaskStates {
			s, known := fromTask(a, task, state)
			if !known && !l.isScreen(s) {
				continue
			}
			found = append(found, s)
		}
		if len(a.TaskStates) == 0 {
			found = append(found, l.waiting(a)...)
		}
	}
	return newest(found), nil
}

// lister asks each job once which of its tasks are screens.
type lister struct {
	ctx     context.Context
	client  *api.Client
	drivers map[string]map[string]string
}

// tasks gives the drivers of a job's tasks by group/task. A job that is gone has
// none.
func (l *lister) tasks(namespace, id string) map[string]string {
	key := namespace + "\x00" + id
	if out, ok := l.drivers[key]; ok {
		return out
	}
	out := map[string]string{}
	l.drivers[key] = out
	job, _, err := l.client.Jobs().Info(id, (&api.QueryOptions{Namespace: namespace}).WithContext(l.ctx))
	if err != nil {
		return out
	}
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			out[*g.Name+"/"+t.Name] = t.Driver
		}
	}
	return out
}

func (l *lister) isScreen(s Screen) bool {
	return l.tasks(s.Namespace, s.Job)[s.Group+"/"+s.Task] == Driver
}

// waiting are the screens of an allocation that its client has not taken up yet.
func (l *lister) waiting(a *api.AllocationListStub) []Screen {
	var out []Screen
	for path, driver := range l.tasks(a.Namespace, a.JobID) {
		group, task, _ := cutLast(path)
		if driver == Driver && group == a.TaskGroup {
			s, _ := fromTask(a, task, &api.TaskState{State: "pending"})
			out = append(out, s)
		}
	}
	return out
}

func cutLast(path string) (before, after string, ok bool) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:], true
		}
	}
	return path, "", false
}

// newest keeps one allocation per slot of a job: the live one, else the last.
func newest(all []Screen) []Screen {
	type slot struct{ namespace, name, task string }
	best := map[slot]Screen{}
	for _, s := range all {
		k := slot{s.Namespace, s.name, s.Task}
		old, ok := best[k]
		if !ok || (s.Live() && !old.Live()) || (s.Live() == old.Live() && s.created > old.created) {
			best[k] = s
		}
	}
	var out []Screen
	for _, s := range best {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Screen) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Job, b.Job), cmp.Compare(a.name, b.name), cmp.Compare(a.Task, b.Task))
	})
	return out
}
