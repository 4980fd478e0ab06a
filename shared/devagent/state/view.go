// SPDX-License-Identifier: MPL-2.0

package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// AnyNamespace stands for all namespaces in the list calls.
const AnyNamespace = "*"

// View reads the store. What it returns must not be changed.
type View struct {
	index       uint64
	jobs        *table[*Job]
	evals       *table[*api.Evaluation]
	allocs      *table[*api.Allocation]
	deployments *table[*api.Deployment]
	variables   *table[*api.Variable]
	nodes       *table[*api.Node]
}

// anyTable is a table whatever its rows.
type anyTable interface {
	load() error
	setIndex(uint64)
}

func (v *View) tables() []anyTable {
	return []anyTable{v.jobs, v.evals, v.allocs, v.deployments, v.variables, v.nodes}
}

// Index is that of the newest change.
func (v *View) Index() uint64 { return v.index }

// TableIndex is that of the newest change of any of the tables.
func (v *View) TableIndex(names ...Table) uint64 {
	var index uint64
	for _, name := range names {
		switch name {
		case Jobs:
			index = max(index, v.jobs.index)
		case Evals:
			index = max(index, v.evals.index)
		case Allocs:
			index = max(index, v.allocs.index)
		case Deployments:
			index = max(index, v.deployments.index)
		case Variables:
			index = max(index, v.variables.index)
		case Nodes:
			index = max(index, v.nodes.index)
		}
	}
	return index
}

// key joins a namespace and a name; neither can hold NUL.
func key(namespace, name string) string { return namespace + "\x00" + name }

// Job gives a job, or nil.
func (v *View) Job(namespace, id string) *Job { return v.jobs.rows[key(namespace, id)] }

// JobVersion gives the definition of a job at a version, or nil.
func (v *View) JobVersion(namespace, id string, version uint64) *api.Job {
	row := v.Job(namespace, id)
	if row == nil {
		return nil
	}
	if *row.Job.Version == version {
		return row.Job
	}
	for _, old := range row.Versions {
		if *old.Version == version {
			return old
		}
	}
	return nil
}

// Jobs lists the jobs whose id begins with prefix, by namespace and id.
func (v *View) Jobs(namespace, prefix string) []*Job {
	out := pick(v.jobs.rows, func(j *Job) bool {
		return within(namespace, *j.Job.Namespace) && strings.HasPrefix(*j.Job.ID, prefix)
	})
	slices.SortFunc(out, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(*a.Job.Namespace, *b.Job.Namespace), cmp.Compare(*a.Job.ID, *b.Job.ID))
	})
	return out
}

// Eval gives an evaluation, or nil.
func (v *View) Eval(id string) *api.Evaluation { return v.evals.rows[id] }

// Evals lists evaluations, oldest first.
func (v *View) Evals(keep func(*api.Evaluation) bool) []*api.Evaluation {
	out := pick(v.evals.rows, keep)
	slices.SortFunc(out, func(a, b *api.Evaluation) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// JobEvals lists the evaluations of one job, newest first.
func (v *View) JobEvals(namespace, id string) []*api.Evaluation {
	out := v.Evals(func(e *api.Evaluation) bool { return e.Namespace == namespace && e.JobID == id })
	slices.Reverse(out)
	return out
}

// Alloc gives an allocation, or nil.
func (v *View) Alloc(id string) *api.Allocation { return v.allocs.rows[id] }

// Allocs lists allocations, oldest first.
func (v *View) Allocs(keep func(*api.Allocation) bool) []*api.Allocation {
	out := pick(v.allocs.rows, keep)
	slices.SortFunc(out, func(a, b *api.Allocation) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// JobAllocs lists the allocations of one job, oldest first.
func (v *View) JobAllocs(namespace, id string) []*api.Allocation {
	return v.Allocs(func(a *api.Allocation) bool { return a.Namespace == namespace && a.JobID == id })
}

// Deployment gives a deployment, or nil.
func (v *View) Deployment(id string) *api.Deployment { return v.deployments.rows[id] }

// Deployments lists deployments, newest first.
func (v *View) Deployments(keep func(*api.Deployment) bool) []*api.Deployment {
	out := pick(v.deployments.rows, keep)
	slices.SortFunc(out, func(a, b *api.Deployment) int {
		return cmp.Or(cmp.Compare(b.CreateIndex, a.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// LatestDeployment gives the newest deployment of a job, or nil.
func (v *View) LatestDeployment(namespace, job string) *api.Deployment {
	all := v.Deployments(func(d *api.Deployment) bool { return d.Namespace == namespace && d.JobID == job })
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// Variable gives a variable with its items, or nil.
func (v *View) Variable(namespace, path string) *api.Variable {
	return v.variables.rows[key(namespace, path)]
}

// Variables lists the variables whose path begins with prefix, by namespace and path.
func (v *View) Variables(namespace, prefix string) []*api.Variable {
	out := pick(v.variables.rows, func(one *api.Variable) bool {
		return within(namespace, one.Namespace) && strings.HasPrefix(one.Path, prefix)
	})
	slices.SortFunc(out, func(a, b *api.Variable) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// Node gives the node, or nil before it registered.
func (v *View) Node() *api.Node {
	for _, n := range v.nodes.rows {
		return n
	}
	return nil
}

func within(asked, namespace string) bool { return asked == AnyNamespace || asked == namespace }

func pick[T any](rows map[string]T, keep func(T) bool) []T {
	out := []T{}
	for _, row := range rows {
		if keep == nil || keep(row) {
			out = append(out, row)
		}
	}
	return out
}
