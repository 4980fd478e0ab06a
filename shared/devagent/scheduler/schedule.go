// SPDX-License-Identifier: MPL-2.0

// Package scheduler decides, as a Nomad server with one node would, which
// allocations of a job are to be started, stopped, updated or replaced, and says why
// something cannot be placed. It only computes: state in, plan out.
package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/ident"
)

// Why an allocation is stopped, in Nomad's words.
const (
	StopNotNeeded   = "alloc not needed due to job update"
	StopUpdating    = "alloc is being updated due to job update"
	StopRescheduled = "alloc was rescheduled because it failed"
	StopMigrating   = "alloc is being migrated"
)

// Input is the state that a decision is made on. Nothing in it is changed.
type Input struct {
	// Job is the newest version, with all defaults; nil once it is purged.
	Job *api.Job
	// Allocs are all allocations of the job, Others the live ones of all other jobs.
	Allocs, Others []*api.Allocation
	Node           *api.Node
	Region         string
	Eval           *api.Evaluation
	// MaxReplace bounds how many allocations of a group are replaced by newer
	// versions at once; a group that is not in it has no bound.
	MaxReplace map[string]int
	Now        time.Time
	// PortFree says whether nobody outside of Nomad listens on a port; nil: nobody.
	PortFree func(int) bool
}

// FollowUp asks for another decision at a time, for failed allocations that are
// replaced only then.
type FollowUp struct {
	At     time.Time
	Allocs []*api.Allocation
}

// Plan is a decision. The allocations in it are new values.
type Plan struct {
	Place, Stop, Update []*api.Allocation
	FollowUps           []FollowUp
	// Failed says per group why allocations could not be placed, Queued how many.
	Failed map[string]*api.AllocationMetric
	Queued map[string]int
	// Desired counts what is planned per group.
	Desired map[string]*api.DesiredUpdates
}

// Schedule makes a decision.
func Schedule(in Input) *Plan {
	p := &planner{in: in, plan: &Plan{
		Failed:  map[string]*api.AllocationMetric{},
		Queued:  map[string]int{},
		Desired: map[string]*api.DesiredUpdates{},
	}}
	if in.Job == nil || (in.Job.Stop != nil && *in.Job.Stop) {
		p.stopAll()
		return p.plan
	}
	var live []*api.Allocation
	for _, a := range slices.Concat(in.Allocs, in.Others) {
		if Live(a) {
			live = append(live, a)
		}
	}
	p.node = newNode(in.Node, in.Region, live, in.PortFree)
	for _, a := range in.Allocs {
		if Live(a) && in.Job.LookupTaskGroup(a.TaskGroup) == nil {
			p.stop(a, StopNotNeeded)
			p.desired(a.TaskGroup).Stop++
		}
	}
	for _, g := range in.Job.TaskGroups {
		p.group(g)
	}
	return p.plan
}

// Live says whether an allocation is to run and may do so: it holds its resources.
func Live(a *api.Allocation) bool { return !a.ServerTerminalStatus() && !a.ClientTerminalStatus() }

// planner collects one plan.
type planner struct {
	in   Input
	node *node
	plan *Plan
}

func (p *planner) desired(group string) *api.DesiredUpdates {
	if p.plan.Desired[group] == nil {
		p.plan.Desired[group] = &api.DesiredUpdates{}
	}
	return p.plan.Desired[group]
}

func (p *planner) stopAll() {
	for _, a := range p.in.Allocs {
		if Live(a) {
			p.stop(a, StopNotNeeded)
			p.desired(a.TaskGroup).Stop++
		}
	}
}

func (p *planner) stop(a *api.Allocation, why string) *api.Allocation {
	stopped := *a
	stopped.DesiredStatus, stopped.DesiredDescription = api.AllocDesiredStatusStop, why
	p.plan.Stop = append(p.plan.Stop, &stopped)
	if p.node != nil && Live(a) {
		p.node.use(a.AllocatedResources, -1)
	}
	return &stopped
}

// slot is one of the allocations that a group is to have.
type slot struct {
	index int
	// alloc has the slot now, or had it last.
	alloc *api.Allocation
	act   action
}

// action is what happens to a slot.
type action string

const (
	keep       action = "keep"
	place      action = "place"
	replace    action = "replace"
	update     action = "update"
	reschedule action = "reschedule"
)

func (p *planner) group(g *api.TaskGroup) {
	count := *g.Count
	if system(p.in.Job) {
		count = min(count, 1)
	}
	desired := p.desired(*g.Name)
	slots, surplus := p.slots(g, count)
	for _, a := range surplus {
		p.stop(a, StopNotNeeded)
		desired.Stop++
	}
	var replaced int
	limit, limited := p.in.MaxReplace[*g.Name]
	for _, s := range slots {
		if s.act == replace && limited && replaced >= limit {
			s.act = keep
		}
		switch s.act {
		case keep:
			desired.Ignore++
		case update:
			desired.InPlaceUpdate++
			p.update(s.alloc)
		case place:
			desired.Place++
			p.place(g, s)
		case replace:
			replaced++
			desired.DestructiveUpdate++
			p.place(g, s)
		case reschedule:
			desired.RescheduleNow++
			p.place(g, s)
		}
	}
	p.plan.Queued[*g.Name] += 0
}

func system(j *api.Job) bool { return *j.Type == api.JobTypeSystem || *j.Type == api.JobTypeSysbatch }
func batch(j *api.Job) bool  { return *j.Type == api.JobTypeBatch || *j.Type == api.JobTypeSysbatch }

// slots says for each index below count what is to happen, and which live
// allocations are too many.
func (p *planner) slots(g *api.TaskGroup, count int) (slots []slot, surplus []*api.Allocation) {
	holders := map[int]*api.Allocation{}
	for _, a := range p.in.Allocs {
		if a.TaskGroup != *g.Name || a.ServerTerminalStatus() || p.forgotten(a) {
			continue
		}
		i := Index(a.Name)
		if other := holders[i]; other != nil && (Live(other) || !Live(a)) {
			if Live(a) {
				surplus = append(surplus, a)
			}
			continue
		}
		holders[i] = a
	}
	for i, a := range holders {
		if i >= count && Live(a) {
			surplus = append(surplus, a)
		}
	}
	for i := range count {
		s := slot{index: i, alloc: holders[i], act: place}
		if s.alloc != nil {
			s.act = p.holder(g, s.alloc)
		}
		slots = append(slots, s)
	}
	slices.SortFunc(surplus, func(a, b *api.Allocation) int { return Index(a.Name) - Index(b.Name) })
	return slots, surplus
}

// forgotten says whether an ended allocation counts for nothing any more.
func (p *planner) forgotten(a *api.Allocation) bool {
	if !a.ClientTerminalStatus() {
		return false
	}
	if batch(p.in.Job) {
		// A changed batch job runs again; an unchanged one does not.
		return *a.Job.Version < *p.in.Job.Version || *a.Job.CreateIndex != *p.in.Job.CreateIndex
	}
	return a.ClientStatus == api.AllocClientStatusComplete
}

// holder says what happens to a slot that somebody has.
func (p *planner) holder(g *api.TaskGroup, a *api.Allocation) action {
	changed := *a.Job.Version != *p.in.Job.Version || *a.Job.CreateIndex != *p.in.Job.CreateIndex
	switch {
	case a.DesiredTransition.ShouldMigrate() && Live(a):
		return replace
	case Live(a) && !changed:
		return keep
	case Live(a) && Destructive(a.Job, p.in.Job, *g.Name):
		return replace
	case Live(a):
		return update
	case a.ClientStatus == api.AllocClientStatusComplete:
		return keep
	}
	if changed && Destructive(a.Job, p.in.Job, *g.Name) {
		return replace
	}
	at, ok := RescheduleAt(g.ReschedulePolicy, a)
	if a.DesiredTransition.ShouldForceReschedule() {
		return reschedule
	}
	switch {
	case !ok || system(p.in.Job):
		return keep
	case at.Sub(p.in.Now) <= rescheduleWindow || a.FollowupEvalID != "" && a.FollowupEvalID == p.in.Eval.ID:
		return reschedule
	case a.FollowupEvalID == "":
		p.plan.FollowUps = append(p.plan.FollowUps, FollowUp{At: at, Allocs: []*api.Allocation{a}})
		p.desired(*g.Name).RescheduleLater++
	}
	return keep
}

// update gives a running allocation the new version of its job.
func (p *planner) update(a *api.Allocation) {
	next := *a
	next.Job, next.EvalID = p.in.Job, p.in.Eval.ID
	p.plan.Update = append(p.plan.Update, &next)
}

// place puts a new allocation into a slot. The one that it replaces is stopped only
// when the new one has a place, so that a job is never without both.
func (p *planner) place(g *api.TaskGroup, s slot) {
	old := s.alloc
	if old != nil && Live(old) {
		p.node.use(old.AllocatedResources, -1)
	}
	resources, metric := p.node.place(p.in.Job, g, p.others(old))
	if resources == nil {
		if old != nil && Live(old) {
			p.node.use(old.AllocatedResources, 1)
		}
		p.failed(*g.Name, metric)
		return
	}
	p.node.use(resources, 1)
	a := p.fresh(g, s.index, resources, metric)
	if old != nil {
		a.PreviousAllocation = old.ID
		why := StopUpdating
		switch {
		case s.act == reschedule:
			why = StopRescheduled
			a.RescheduleTracker = rescheduled(old, p.in.Now)
		case old.DesiredTransition.ShouldMigrate():
			why = StopMigrating
		}
		stopped := *old
		stopped.DesiredStatus, stopped.DesiredDescription, stopped.NextAllocation = api.AllocDesiredStatusStop, why, a.ID
		p.plan.Stop = append(p.plan.Stop, &stopped)
	}
	p.plan.Place = append(p.plan.Place, a)
}

// others are the job's live allocations beside the one that is replaced.
func (p *planner) others(old *api.Allocation) []*api.Allocation {
	stopped := map[string]bool{}
	for _, a := range p.plan.Stop {
		stopped[a.ID] = true
	}
	var out []*api.Allocation
	for _, a := range p.in.Allocs {
		if a != old && Live(a) && !stopped[a.ID] {
			out = append(out, a)
		}
	}
	return append(out, p.plan.Place...)
}

func (p *planner) failed(group string, metric *api.AllocationMetric) {
	p.plan.Queued[group]++
	if before := p.plan.Failed[group]; before != nil {
		before.CoalescedFailures++
		return
	}
	p.plan.Failed[group] = metric
}

func (p *planner) fresh(g *api.TaskGroup, index int, r *api.AllocatedResources, m *api.AllocationMetric) *api.Allocation {
	return &api.Allocation{
		ID:                 ident.UUID(),
		Namespace:          *p.in.Job.Namespace,
		EvalID:             p.in.Eval.ID,
		Name:               fmt.Sprintf("%s.%s[%d]", *p.in.Job.ID, *g.Name, index),
		NodeID:             p.in.Node.ID,
		NodeName:           p.in.Node.Name,
		JobID:              *p.in.Job.ID,
		Job:                p.in.Job,
		TaskGroup:          *g.Name,
		AllocatedResources: r,
		Metrics:            m,
		DesiredStatus:      api.AllocDesiredStatusRun,
		ClientStatus:       api.AllocClientStatusPending,
	}
}

// Index is the number in an allocation's name, "job.group[3]".
func Index(name string) int {
	open := strings.LastIndexByte(name, '[')
	if open < 0 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(name[open+1:], "]"))
	if err != nil {
		return 0
	}
	return n
}
