// SPDX-License-Identifier: MPL-2.0

package state

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// Tx collects the changes of one Update. It reads the state before them.
type Tx struct {
	*View
	index   uint64
	changes []change
}

// Index is the index that the changes will have.
func (tx *Tx) Index() uint64 { return tx.index }

// PutJob stores a job with its versions. The indexes of the job are the caller's.
func (tx *Tx) PutJob(row *Job) {
	tx.changes = append(tx.changes, &put[*Job]{
		table: tx.jobs, key: key(*row.Job.Namespace, *row.Job.ID), row: row, durable: true,
	})
}

// DeleteJob purges a job.
func (tx *Tx) DeleteJob(namespace, id string) {
	tx.changes = append(tx.changes, &remove[*Job]{table: tx.jobs, key: key(namespace, id)})
}

// PutEval stores an evaluation and sets its indexes and times.
func (tx *Tx) PutEval(e *api.Evaluation) {
	now := time.Now().UnixNano()
	if e.CreateIndex == 0 {
		e.CreateIndex, e.CreateTime = tx.index, now
	}
	e.ModifyIndex, e.ModifyTime = tx.index, now
	tx.changes = append(tx.changes, &put[*api.Evaluation]{table: tx.evals, key: e.ID, row: e})
}

// DeleteEval removes an evaluation.
func (tx *Tx) DeleteEval(id string) {
	tx.changes = append(tx.changes, &remove[*api.Evaluation]{table: tx.evals, key: id})
}

// PutAlloc stores an allocation whose definition or desired state the server
// changed, and sets its indexes and times.
func (tx *Tx) PutAlloc(a *api.Allocation) {
	a.AllocModifyIndex = tx.index
	tx.PutAllocClient(a)
}

// PutAllocClient stores an allocation of which the client reports.
func (tx *Tx) PutAllocClient(a *api.Allocation) {
	now := time.Now().UnixNano()
	if a.CreateIndex == 0 {
		a.CreateIndex, a.CreateTime = tx.index, now
	}
	a.ModifyIndex, a.ModifyTime = tx.index, now
	tx.changes = append(tx.changes, &put[*api.Allocation]{table: tx.allocs, key: a.ID, row: a})
}

// DeleteAlloc removes an allocation.
func (tx *Tx) DeleteAlloc(id string) {
	tx.changes = append(tx.changes, &remove[*api.Allocation]{table: tx.allocs, key: id})
}

// PutDeployment stores a deployment and sets its indexes and times.
func (tx *Tx) PutDeployment(d *api.Deployment) {
	now := time.Now().UnixNano()
	if d.CreateIndex == 0 {
		d.CreateIndex, d.CreateTime = tx.index, now
	}
	d.ModifyIndex, d.ModifyTime = tx.index, now
	tx.changes = append(tx.changes, &put[*api.Deployment]{table: tx.deployments, key: d.ID, row: d})
}

// DeleteDeployment removes a deployment.
func (tx *Tx) DeleteDeployment(id string) {
	tx.changes = append(tx.changes, &remove[*api.Deployment]{table: tx.deployments, key: id})
}

// PutVariable stores a variable and sets its indexes and times.
func (tx *Tx) PutVariable(v *api.Variable) {
	now := time.Now().UnixNano()
	if v.CreateIndex == 0 {
		v.CreateIndex, v.CreateTime = tx.index, now
	}
	v.ModifyIndex, v.ModifyTime = tx.index, now
	tx.changes = append(tx.changes, &put[*api.Variable]{
		table: tx.variables, key: key(v.Namespace, v.Path), row: v, durable: true,
	})
}

// DeleteVariable removes a variable.
func (tx *Tx) DeleteVariable(namespace, path string) {
	tx.changes = append(tx.changes, &remove[*api.Variable]{table: tx.variables, key: key(namespace, path)})
}

// PutNode stores the node and sets its indexes.
func (tx *Tx) PutNode(n *api.Node) {
	if n.CreateIndex == 0 {
		n.CreateIndex = tx.index
	}
	n.ModifyIndex = tx.index
	tx.changes = append(tx.changes, &put[*api.Node]{table: tx.nodes, key: n.ID, row: n})
}

// DeleteNode removes the node of an earlier identity.
func (tx *Tx) DeleteNode(id string) {
	tx.changes = append(tx.changes, &remove[*api.Node]{table: tx.nodes, key: id})
}
