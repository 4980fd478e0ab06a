// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// screenChange is what a plan means for a screen.
type screenChange struct {
	// causes are the attributes because of which the desktop starts anew.
	causes   []string
	restarts bool // a desktop that runs is ended
	stops    bool
	starts   bool
	// again: the job as such is the same, so it needs another generation to run again.
	again bool
}

// job says whether Nomad has to be told anything.
func (c screenChange) job() bool { return len(c.causes) > 0 || c.stops || c.starts }

// changes compares what is planned with the refreshed state. It is pure: both of
// Terraform's plans come to the same.
func (m *screenModel) changes(ctx context.Context, old *screenModel, before *api.Job) screenChange {
	var c screenChange
	add := func(changed bool, name string) {
		if changed {
			c.causes = append(c.causes, name)
		}
	}
	add(refChanged(m.Profile, old.ProfileRef), "profile")
	add(refChanged(m.Placement, old.PlacementRef), "placement")
	add(!m.Image.Equal(old.Image), "image")
	add(!m.Meta.Equal(old.Meta), "meta")
	triggers := triggersHash(ctx, old)
	if before != nil {
		triggers = before.Meta[nomadjob.MetaTriggers]
	}
	add(m.RestartTriggers.IsUnknown() || triggersHash(ctx, m) != triggers, "restart_triggers")
	add(len(old.Drift.Elements()) > 0, "drift")
	running := m.DesiredState.ValueString() != stateStopped
	wasStopped := old.DesiredState.ValueString() == stateStopped
	c.stops = !running && !wasStopped
	c.starts = running && wasStopped
	if running && !wasStopped && m.RunPolicy.ValueString() == policyAlways && ended(old.Status.ValueString()) {
		c.starts, c.again = true, len(c.causes) == 0
	}
	c.restarts = (len(c.causes) > 0 || c.stops) && live(old.Status.ValueString())
	return c
}

// refChanged compares what is named with what the job was made from: a plain name follows
// its record, which is drift's to show.
func refChanged(named, from types.String) bool {
	if named.IsUnknown() {
		return true
	}
	name, hash, _ := nomadjob.ParseRef(named.ValueString())
	if hash != "" || named.IsNull() {
		return named.ValueString() != from.ValueString()
	}
	other, _, _ := nomadjob.ParseRef(from.ValueString())
	return name != other
}

func ended(status string) bool {
	return slices.Contains([]string{"idle_stopped", "stopped", "failed", "lost"}, status)
}

func live(status string) bool {
	return slices.Contains([]string{"running", "asleep", "pending"}, status)
}

// ModifyPlan is pure in what it plans; only its diagnostics may ask the cluster.
func (r *screenResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		r.planDestroy(ctx, req, resp)
		return
	}
	var m, config screenModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if config.JobID.IsNull() && !m.Name.IsUnknown() && (m.JobID.IsUnknown() || m.JobID.IsNull()) {
		m.JobID = types.StringValue("botscreen-" + m.Name.ValueString())
	}
	if req.State.Raw.IsNull() {
		m.settle(r.cluster, config.Namespace, types.StringNull())
		// Not before it is there: a ticket for it, or whatever else needs the desktop, waits.
		m.ID = types.StringUnknown()
		if config.DesiredState.IsNull() {
			m.DesiredState = types.StringValue(stateRunning)
		}
		resp.Diagnostics.Append(r.checkPlacement(ctx, &m)...)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
		return
	}
	var old screenModel
	resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.settle(r.cluster, config.Namespace, old.Namespace) {
		resp.RequiresReplace.Append(pathNamespace)
	}
	if config.DesiredState.IsNull() {
		// Not asked for: a screen that somebody stopped stays stopped, unless it is always to run.
		m.DesiredState = old.DesiredState
		if m.RunPolicy.ValueString() == policyAlways {
			m.DesiredState = types.StringValue(stateRunning)
		}
	}
	r.planUpdate(ctx, req, resp, &m, &old)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
}

// planUpdate decides which of the observed attributes are not known any more.
func (r *screenResource) planUpdate(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse, m, old *screenModel) {
	change := m.changes(ctx, old, keptJob(ctx, req.Private))
	m.observed = old.observed
	if !change.job() {
		return
	}
	m.observed.forget()
	if _, hash, _ := nomadjob.ParseRef(m.Profile.ValueString()); hash != "" {
		m.ProfileRef = m.Profile
	}
	if _, hash, _ := nomadjob.ParseRef(m.Placement.ValueString()); hash != "" || m.Placement.IsNull() {
		m.PlacementRef = m.Placement
	}
	if change.again && m.WaitFor.ValueString() == string(nomadjob.Running) {
		m.Status = types.StringValue(string(nomadjob.StatusRunning))
	}
	if change.restarts {
		r.warnRestart(resp, m, old, change)
	}
	if !change.stops {
		resp.Diagnostics.Append(r.checkPlacement(ctx, m)...)
	}
}

// forget makes everything unknown but drift, which an update always ends.
func (o *observed) forget() {
	unknown := types.StringUnknown()
	*o = observed{
		Status: unknown, StopReason: unknown, Isolation: unknown, ImageDigest: unknown, AllocID: unknown, NodeID: unknown, NodeName: unknown,
		ProfileRef: unknown, PlacementRef: unknown, JobVersion: types.Int64Unknown(), Lease: types.ObjectUnknown(leaseType), ViewerURL: unknown,
		Drift: types.ListValueMust(types.StringType, nil),
	}
}

// warnRestart tells that a running desktop ends, and refuses while a person has it.
func (r *screenResource) warnRestart(resp *resource.ModifyPlanResponse, m, old *screenModel, change screenChange) {
	name := m.Name.ValueString()
	verb := "restarts"
	if change.stops {
		verb = "stops"
	}
	if heldInState(old) && !m.Force.ValueBool() && !m.Force.IsUnknown() {
		resp.Diagnostics.Append(heldInPlan(old, "This change "+verb+" the desktop and"))
		return
	}
	if change.stops {
		return // it is what was asked for
	}
	resp.Diagnostics.AddAttributeWarning(path.Root(change.causes[0]), fmt.Sprintf("This change restarts the running desktop %q", name),
		fmt.Sprintf("Changed: %s. Windows are lost; the home directory and its logins stay.", strings.Join(change.causes, ", ")))
}

func (r *screenResource) planDestroy(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	var old screenModel
	resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
	if !resp.Diagnostics.HasError() && heldInState(&old) && !old.Force.ValueBool() && live(old.Status.ValueString()) {
		resp.Diagnostics.Append(heldInPlan(&old, "Destroying it"))
	}
}

func heldInState(m *screenModel) bool {
	holder, ok := m.Lease.Attributes()["holder"].(types.String)
	return ok && holder.ValueString() == "human"
}
