// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// jobKey is where the private state keeps the job as it was rendered: drift is what the
// job in Nomad has become since, whatever a newer provider would render.
const jobKey = "job"

func keepJob(ctx context.Context, p privateWriter, job *api.Job, diags *diag.Diagnostics) {
	text, err := json.Marshal(job)
	if err != nil {
		diags.AddError("The job cannot be kept", err.Error())
		return
	}
	diags.Append(p.SetKey(ctx, jobKey, text)...)
}

// keptJob is the job as it was rendered; nil where it was taken over.
func keptJob(ctx context.Context, p privateReader) *api.Job {
	text, _ := p.GetKey(ctx, jobKey)
	var job api.Job
	if len(text) == 0 || json.Unmarshal(text, &job) != nil {
		return nil
	}
	return &job
}

// Read looks at the job and its newest allocation: two requests, and one more for each
// record that the configuration names without its version.
func (r *screenResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m screenModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	setIdentity(ctx, resp.Identity, m.identity(r.cluster), &resp.Diagnostics)
	if !r.cluster.known() {
		return
	}
	client, d := r.cluster.client(ctx)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.JobID.IsNull() {
		m.JobID = types.StringValue(jobNamed(ctx, client, m.Namespace.ValueString(), m.Name.ValueString()))
	}
	found, err := nomadjob.Lookup(ctx, client, m.Namespace.ValueString(), m.JobID.ValueString())
	if connection.Classify(err) == connection.NotFound {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(r.cluster.explain(err, readJob(&m)))
		return
	}
	imported := m.Profile.IsNull()
	if imported && !nomadjob.IsScreen(found.Job) {
		resp.Diagnostics.AddError("This job is no screen", fmt.Sprintf("The job %s has no single task of the driver %s. It was not imported.", m.JobID.ValueString(), nomadjob.Driver))
		return
	}
	if imported {
		m.adopt(ctx, found.Job, &resp.Diagnostics)
	}
	wanted := keptJob(ctx, req.Private)
	drift := driftOf(wanted, found.Job)
	drift = append(drift, r.moved(ctx, client, &m, found.Job)...)
	m.observe(ctx, found, drift, &resp.Diagnostics)
	keepIndex(ctx, resp.Private, *found.Job.JobModifyIndex, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// jobNamed is the job that a name means: the screen's, or the one of that very name.
func jobNamed(ctx context.Context, client *api.Client, namespace, name string) string {
	own := "botscreen-" + name
	if _, _, err := client.Jobs().Info(own, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)); connection.Classify(err) == connection.NotFound {
		return name
	}
	return own
}

// adopt takes what a job says about itself into a state that has only a name.
func (m *screenModel) adopt(ctx context.Context, job *api.Job, diags *diag.Diagnostics) {
	task := job.TaskGroups[0].Tasks[0]
	config := func(key string) string {
		text, _ := task.Config[key].(string)
		return text
	}
	m.Name = types.StringValue(first(job.Meta[nomadjob.MetaName], m.Name.ValueString()))
	m.ID = types.StringValue(m.Name.ValueString() + "@" + m.Namespace.ValueString())
	m.Profile = types.StringValue(first(job.Meta[nomadjob.MetaProfile], config("profile")))
	m.Placement, m.Image = optional(job.Meta[nomadjob.MetaPlacement]), optional(first(config("image")))
	m.RunPolicy, m.WaitFor = types.StringValue(policyDemand), types.StringValue(string(nomadjob.Running))
	m.PurgeOnDestroy, m.Force = types.BoolValue(true), types.BoolValue(false)
	m.DesiredState = types.StringValue(stateRunning)
	own := map[string]string{}
	for key, value := range job.Meta {
		if !strings.HasPrefix(key, nomadjob.MetaPrefix) {
			own[key] = value
		}
	}
	m.Meta = tableOr(ctx, own, types.MapNull(types.StringType), diags)
}

func optional(text string) types.String {
	if text == "" {
		return types.StringNull()
	}
	return types.StringValue(text)
}

// driftOf compares a job with what was rendered. Whether it is stopped is desired_state's.
func driftOf(wanted, found *api.Job) []string {
	if wanted == nil {
		return nil
	}
	w := *wanted
	w.Stop = nil
	lines, err := nomadjob.Drift(&w, found)
	if err != nil {
		return []string{err.Error()}
	}
	return lines
}

// moved are records that the configuration names without a version and that have another
// one now than the job was made from. With a version the plan itself shows it.
func (r *screenResource) moved(ctx context.Context, client *api.Client, m *screenModel, job *api.Job) []string {
	var out []string
	for _, one := range []struct {
		kind nomadjob.Kind
		attr types.String
		key  string
	}{
		{nomadjob.ProfileKind, m.Profile, nomadjob.MetaProfile},
		{nomadjob.PlacementKind, m.Placement, nomadjob.MetaPlacement},
		{nomadjob.ImageKind, m.Image, nomadjob.MetaImageRef},
	} {
		name, hash, ok := nomadjob.ParseRef(one.attr.ValueString())
		if one.attr.IsNull() || !ok || hash != "" || job.Meta[one.key] == "" {
			continue
		}
		rec, err := r.cluster.records(client).Read(ctx, one.kind, m.Namespace.ValueString(), name)
		if err == nil && rec.Ref() != job.Meta[one.key] {
			out = append(out, fmt.Sprintf("%s: %s → %s (its record changed)", one.kind, job.Meta[one.key], rec.Ref()))
		}
	}
	return out
}

// observe takes over what the cluster says.
func (m *screenModel) observe(ctx context.Context, d *nomadjob.Declared, drift []string, diags *diag.Diagnostics) {
	s := d.Screen
	m.Status = types.StringValue(string(d.Status))
	m.StopReason = types.StringNull()
	if d.Status != nomadjob.StatusRunning && d.Status != nomadjob.StatusPending {
		m.StopReason = optional(s.Reason.String())
	}
	m.Isolation, m.ImageDigest = optional(s.Isolation), optional(s.ImageDigest)
	m.AllocID, m.NodeID, m.NodeName = optional(s.Alloc), optional(s.NodeID), optional(s.Node)
	m.ProfileRef, m.PlacementRef = optional(d.Job.Meta[nomadjob.MetaProfile]), optional(d.Job.Meta[nomadjob.MetaPlacement])
	m.JobVersion = types.Int64Value(int64(*d.Job.Version))
	m.DesiredState = types.StringValue(stateRunning)
	if d.Job.Stop != nil && *d.Job.Stop {
		m.DesiredState = types.StringValue(stateStopped)
	}
	slices.Sort(drift)
	if drift == nil {
		drift = []string{}
	}
	m.Drift = listOf(ctx, drift, diags)
	m.Lease = leaseOf(d)
	m.ViewerURL = optional(d.ViewerURL)
}

func leaseOf(d *nomadjob.Declared) types.Object {
	if d.Screen.Holder == "" {
		return types.ObjectNull(leaseType)
	}
	return types.ObjectValueMust(leaseType, map[string]attr.Value{
		"holder": types.StringValue(d.Screen.Holder),
		"since":  types.StringValue(d.LeaseSince.UTC().Format(time.RFC3339)),
		"epoch":  types.Int64Value(int64(d.Screen.Epoch)),
	})
}

// ImportState takes NAME, NAME@NAMESPACE, JOB_ID or JOB_ID@NAMESPACE.
func (r *screenResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	r.cluster.importName(ctx, req, resp)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("profile"), types.StringNull())...)
	}
}
