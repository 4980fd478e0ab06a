// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

type screenResource struct{ cluster *cluster }

var (
	_ resource.ResourceWithConfigure   = (*screenResource)(nil)
	_ resource.ResourceWithIdentity    = (*screenResource)(nil)
	_ resource.ResourceWithImportState = (*screenResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*screenResource)(nil)
)

func newScreen() resource.Resource { return &screenResource{} }

func (r *screenResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_screen"
}

func (r *screenResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = screenSchema(ctx)
}

func (r *screenResource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identitySchema()
}

func (r *screenResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	asCluster(req.ProviderData, &r.cluster)
}

// Create registers the job, which must not exist, and waits. If the desktop does not come
// up, nothing is left behind.
func (r *screenResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m screenModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	limit, d := m.Timeouts.Create(ctx, createTimeout)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	a := r.applier(ctx, &m, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	m.ID = types.StringValue(m.Name.ValueString() + "@" + m.Namespace.ValueString())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	job := a.register(ctx, 0, "")
	if resp.Diagnostics.HasError() {
		return
	}
	if a.await(ctx, job, limit); resp.Diagnostics.HasError() {
		a.undo(context.WithoutCancel(ctx))
		return
	}
	a.finish(context.WithoutCancel(ctx), resp.Private)
	setIdentity(ctx, resp.Identity, m.identity(r.cluster), &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Update registers the job anew where it has to change. If the desktop does not come up
// the state stays what it was, and the next plan shows what is.
func (r *screenResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, old screenModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	before := keptJob(ctx, req.Private)
	limit, d := m.Timeouts.Update(ctx, createTimeout)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	setIdentity(ctx, resp.Identity, m.identity(r.cluster), &resp.Diagnostics)
	change := m.changes(ctx, &old, before)
	if !change.job() { // force, wait_for, run_policy, purge_on_destroy and timeouts are ours alone
		m.observed = old.observed
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
		return
	}
	a := r.applier(ctx, &m, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if a.refuseHeld(ctx, change); resp.Diagnostics.HasError() {
		return
	}
	generation := ""
	if change.again {
		generation = nomadjob.Generation()
	}
	if index = a.retype(ctx, index, before); resp.Diagnostics.HasError() {
		return
	}
	job := a.register(ctx, index, generation)
	if resp.Diagnostics.HasError() {
		return
	}
	if a.await(ctx, job, limit); resp.Diagnostics.HasError() {
		return
	}
	planned := m.Status
	a.finish(context.WithoutCancel(ctx), resp.Private)
	if !planned.IsUnknown() {
		m.Status = planned // it has come up; that it sleeps or has ended since is the next refresh's to tell
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// retype removes a job that has to be of another type now, which Nomad does not change in
// place, and gives the index at which the new one is registered.
func (a *applier) retype(ctx context.Context, index uint64, before *api.Job) uint64 {
	if before == nil || before.Type == nil || (*before.Type == api.JobTypeBatch) == a.wanted.Profile.Exits() {
		return index
	}
	namespace, id := a.model.Namespace.ValueString(), a.model.JobID.ValueString()
	now, err := nomadjob.Lookup(ctx, a.client, namespace, id)
	switch {
	case err != nil:
		a.diags.Append(a.cluster.explain(err, readJob(a.model)))
		return index
	case *now.Job.JobModifyIndex != index:
		a.diags.Append(jobChanged(a.model.Name.ValueString(), *now.Job.JobModifyIndex, index))
		return index
	}
	if err := nomadjob.Stop(ctx, a.client, namespace, id, true); err != nil {
		a.diags.Append(a.cluster.explain(err, submitJob(a.model, "stop")))
	}
	return 0
}

// Delete ends the desktop and waits for its end.
func (r *screenResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m screenModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	limit, d := m.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(d...)
	client, d := r.cluster.client(ctx)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	namespace, id := m.Namespace.ValueString(), m.JobID.ValueString()
	found, err := nomadjob.Lookup(ctx, client, namespace, id)
	switch {
	case connection.Classify(err) == connection.NotFound:
		return
	case err != nil:
		resp.Diagnostics.Append(r.cluster.explain(err, readJob(&m)))
		return
	case index != 0 && *found.Job.JobModifyIndex != index:
		resp.Diagnostics.Append(jobChanged(m.Name.ValueString(), *found.Job.JobModifyIndex, index))
		return
	case found.Held() && !m.Force.ValueBool():
		resp.Diagnostics.Append(held(m.Name.ValueString(), found.Screen, found.LeaseSince, "Destroying it"))
		return
	}
	if err := nomadjob.Stop(ctx, client, namespace, id, m.PurgeOnDestroy.ValueBool()); err != nil {
		resp.Diagnostics.Append(r.cluster.explain(err, submitJob(&m, "stop")))
	}
}

// undo removes what a create that failed has registered.
func (a *applier) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := nomadjob.Stop(ctx, a.client, a.model.Namespace.ValueString(), a.model.JobID.ValueString(), true); err != nil {
		a.diags.Append(a.cluster.explain(err, operation{
			doing: "remove the job " + a.model.JobID.ValueString() + " again", namespace: a.model.Namespace.ValueString(),
			kept: "It is still there and not in the state: remove it with `nomad job stop -purge`.",
		}))
	}
}

func readJob(m *screenModel) operation {
	return operation{doing: "read the job " + m.JobID.ValueString(), namespace: m.Namespace.ValueString(), needs: `capabilities = ["read-job", "list-jobs"]`}
}

func submitJob(m *screenModel, verb string) operation {
	return operation{doing: verb + " the job " + m.JobID.ValueString(), namespace: m.Namespace.ValueString(), needs: `capabilities = ["read-job", "list-jobs", "submit-job"]`}
}

func jobChanged(name string, found, planned uint64) diag.Diagnostic {
	return diag.NewErrorDiagnostic(fmt.Sprintf("The job of screen %q was changed since this plan", name),
		fmt.Sprintf("Its job modify index is %d; this change was planned against %d. Nothing was changed. Run plan again to see what they changed.", found, planned))
}

// triggersHash is what the job keeps of restart_triggers.
func triggersHash(ctx context.Context, m *screenModel) string {
	r := reader{ctx: ctx, known: true}
	table := map[string]string{}
	r.table(m.RestartTriggers, &table)
	if len(table) == 0 {
		return ""
	}
	text, _ := nomadjob.Canonical(table)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// asJobConflict reads the indexes out of a refused registration.
func asJobConflict(err error, name string, planned uint64) diag.Diagnostic {
	var found uint64
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		_, _ = fmt.Sscanf(answer.Body(), api.RegisterEnforceIndexErrPrefix+" %d: job exists with conflicting job modify index: %d", new(uint64), &found)
	}
	return jobChanged(name, found, planned)
}

var pathImage = path.Root("image")
