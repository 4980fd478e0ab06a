// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// planned are records of this very plan, by ref: a screen that is planned with them can be
// checked against the cluster before they are written. Only diagnostics depend on it.
type planned struct {
	mu   sync.Mutex // guards byRef
	byID map[string]json.RawMessage
}

func (p *planned) put(kind nomadjob.Kind, ref string, spec json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = map[string]json.RawMessage{}
	}
	p.byID[string(kind)+"/"+ref] = spec
}

func (p *planned) get(kind nomadjob.Kind, ref string) (json.RawMessage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spec, ok := p.byID[string(kind)+"/"+ref]
	return spec, ok
}

// checkPlacement has Nomad try the job without running it, where everything it needs is
// known, and reports what it says as plan_checks asks for. It plans nothing.
func (r *screenResource) checkPlacement(ctx context.Context, m *screenModel) diag.Diagnostics {
	if r.cluster == nil || r.cluster.planChecks == "off" || m.DesiredState.ValueString() == stateStopped {
		return nil
	}
	if !r.cluster.known() || r.cluster.conn.Address() == "" || m.unknown() {
		return nil
	}
	var diags diag.Diagnostics
	client, d := r.cluster.client(ctx)
	if d.HasError() {
		return unchecked(d)
	}
	w := nomadjob.Wanted{
		Namespace: m.Namespace.ValueString(), Region: r.cluster.region, Records: r.cluster.prefix, Name: m.Name.ValueString(), JobID: m.JobID.ValueString(),
		Placement: nomadjob.DefaultPlacement(), Profile: nomadjob.DefaultProfile(),
		ProfileRef: m.Profile.ValueString(), PlacementRef: m.Placement.ValueString(),
	}
	if !r.known(ctx, client, nomadjob.ProfileKind, w.Namespace, w.ProfileRef, &w.Profile) ||
		w.PlacementRef != "" && !r.known(ctx, client, nomadjob.PlacementKind, w.Namespace, w.PlacementRef, &w.Placement) {
		return nil // told at apply, where it matters
	}
	w.ProfileName, _, _ = nomadjob.ParseRef(w.ProfileRef)
	resp, _, err := client.Jobs().PlanOpts(nomadjob.Render(w), &api.PlanOptions{}, (&api.WriteOptions{Namespace: w.Namespace}).WithContext(ctx))
	if err != nil {
		explained := r.cluster.explain(err, operation{doing: "check where the desktop can run", namespace: w.Namespace, needs: `capabilities = ["plan-job"]`})
		return unchecked(diag.Diagnostics{explained})
	}
	if len(resp.FailedTGAllocs) > 0 {
		severity := diag.SeverityWarning
		if r.cluster.planChecks == "error" {
			severity = diag.SeverityError
		}
		diags.Append(r.cluster.unplaced(nomadjob.Unplaced(resp.FailedTGAllocs), w, severity))
	}
	return diags
}

// unchecked turns a failed check into one warning: a plan does not need the cluster.
func unchecked(errors diag.Diagnostics) diag.Diagnostics {
	return diag.Diagnostics{diag.NewWarningDiagnostic("Where this desktop can run was not checked",
		errors[0].Summary()+". "+errors[0].Detail()+" The plan is as it is; the apply will tell. Set plan_checks = \"off\" to plan without this check.")}
}

// known reads what a screen names, from this plan or from the cluster.
func (r *screenResource) known(ctx context.Context, client *api.Client, kind nomadjob.Kind, namespace, ref string, into any) bool {
	spec, ok := r.cluster.planned.get(kind, ref)
	if !ok {
		name, hash, _ := nomadjob.ParseRef(ref)
		rec, err := r.cluster.records(client).Read(ctx, kind, namespace, name)
		if err != nil || hash != "" && rec.Ref() != ref {
			return false
		}
		spec = rec.Spec
	}
	return json.Unmarshal(spec, into) == nil
}

// unknown says whether something that the job is made of is not known yet.
func (m *screenModel) unknown() bool {
	for _, v := range []types.String{m.Name, m.Namespace, m.JobID, m.Profile, m.Placement, m.Image, m.DesiredState} {
		if v.IsUnknown() {
			return true
		}
	}
	return false
}

func heldInPlan(m *screenModel, what string) diag.Diagnostic {
	lease := m.Lease.Attributes()
	since, _ := lease["since"].(types.String)
	epoch, _ := lease["epoch"].(types.Int64)
	return heldBy(m.Name.ValueString(), screen.Distrust(since.ValueString()).String(), uint64(epoch.ValueInt64()), what)
}
