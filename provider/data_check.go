// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// checkData says whether a placement could host a desktop now. That it cannot is an
// answer, not an error, so that it works in check blocks.
type checkData struct{ screenResource }

func newCheckData() datasource.DataSource { return &checkData{} }

type checkModel struct {
	Placement     types.String `tfsdk:"placement"`
	Profile       types.String `tfsdk:"profile"`
	Namespace     types.String `tfsdk:"namespace"`
	CanHost       types.Bool   `tfsdk:"can_host"`
	Isolation     types.String `tfsdk:"isolation"`
	Refusal       types.String `tfsdk:"refusal"`
	OptIn         types.String `tfsdk:"opt_in"`
	EligibleNodes types.List   `tfsdk:"eligible_nodes"`
	RefusedNodes  types.List   `tfsdk:"refused_nodes"`
}

type refusedNode struct {
	Node   string `tfsdk:"node"`
	Reason string `tfsdk:"reason"`
}

var refusedNodeType = types.ObjectType{AttrTypes: map[string]attr.Type{"node": types.StringType, "reason": types.StringType}}

func (d *checkData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_placement_check"
}

func (d *checkData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Whether a placement could host a desktop now: Nomad tries the job without running it. It never fails because no node can, so it fits into `check` blocks. Needs `node { policy = \"read\" }`.",
		Attributes: map[string]schema.Attribute{
			"placement":      schema.StringAttribute{Required: true, Validators: []validator.String{refValidator{}}, MarkdownDescription: "The placement: `ref` or name."},
			"profile":        schema.StringAttribute{Optional: true, Validators: []validator.String{refValidator{}}, MarkdownDescription: "The profile: `ref` or name. Default: one that says nothing."},
			"namespace":      dataNamespace(),
			"can_host":       schema.BoolAttribute{Computed: true, MarkdownDescription: "A node can take the desktop now."},
			"isolation":      schema.StringAttribute{Computed: true, MarkdownDescription: "The isolation that the first suitable node would choose; null where none can."},
			"refusal":        schema.StringAttribute{Computed: true, MarkdownDescription: "Why not, in words; empty where it can."},
			"opt_in":         schema.StringAttribute{Computed: true, MarkdownDescription: "Name of the attribute that would allow the host, where that is what is missing; else null."},
			"eligible_nodes": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Nodes with a suitable isolation."},
			"refused_nodes": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "The others, with the reason.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"node":   schema.StringAttribute{Computed: true, MarkdownDescription: "Name."},
				"reason": schema.StringAttribute{Computed: true, MarkdownDescription: "Why not."},
			}}},
		},
	}
}

func (d *checkData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *checkData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m checkModel
	client := d.cluster.ask(ctx, req, &m, &m.Namespace, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	w := nomadjob.Wanted{
		Namespace: m.Namespace.ValueString(), Region: d.cluster.region, Name: "check", JobID: "botscreen-placement-check",
		ProfileName: "check", Profile: nomadjob.DefaultProfile(), Placement: nomadjob.DefaultPlacement(), PlacementRef: m.Placement.ValueString(),
	}
	for _, one := range []struct {
		kind nomadjob.Kind
		name string
		ref  types.String
		into any
	}{{nomadjob.PlacementKind, "placement", m.Placement, &w.Placement}, {nomadjob.ProfileKind, "profile", m.Profile, &w.Profile}} {
		if !one.ref.IsNull() && !d.known(ctx, client, one.kind, w.Namespace, one.ref.ValueString(), one.into) {
			resp.Diagnostics.AddAttributeError(path.Root(one.name), fmt.Sprintf("No %s %q in namespace %q", one.name, one.ref.ValueString(), w.Namespace),
				"There is no such record in this version, or the token may not read it.")
		}
	}
	nodes, diags := d.cluster.nodes(ctx, client, "")
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	plan, _, err := client.Jobs().PlanOpts(nomadjob.Render(w), &api.PlanOptions{}, (&api.WriteOptions{Namespace: w.Namespace}).WithContext(ctx))
	if err != nil {
		resp.Diagnostics.Append(d.cluster.explain(err, operation{doing: "check where a desktop can run", namespace: w.Namespace, needs: `capabilities = ["plan-job"]`}))
		return
	}
	m.CanHost, m.Refusal = types.BoolValue(len(plan.FailedTGAllocs) == 0), types.StringValue("")
	if len(plan.FailedTGAllocs) > 0 {
		e := nomadjob.Unplaced(plan.FailedTGAllocs)
		said := d.cluster.unplaced(e, w, 0)
		m.Refusal = types.StringValue(said.Summary() + ". " + said.Detail())
		if e.Filtered && !w.Placement.WantsHost() {
			m.OptIn = types.StringValue(nomadjob.OptIn)
		}
	}
	eligible, refused := []string{}, []refusedNode{}
	for _, n := range nodes {
		isolation, reason := suits(n, w.Placement)
		if reason != "" {
			refused = append(refused, refusedNode{n.Name, reason})
			continue
		}
		eligible = append(eligible, n.Name)
		if m.CanHost.ValueBool() && m.Isolation.IsNull() {
			m.Isolation = types.StringValue(isolation)
		}
	}
	m.EligibleNodes = listOf(ctx, eligible, &resp.Diagnostics)
	m.RefusedNodes, diags = types.ListValueFrom(ctx, refusedNodeType, refused)
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// suits says which isolation a node would choose, or why it cannot.
func suits(n nodeItem, p nomadjob.Placement) (isolation, reason string) {
	wanted := p.IsolationOrder
	if p.Isolation != string(screen.Auto) {
		wanted = []string{p.Isolation}
	}
	switch {
	case !n.Healthy:
		return "", first(n.Reason, "the node takes no work")
	case p.NodePool != "all" && n.NodePool != p.NodePool:
		return "", "it is of the node pool " + n.NodePool
	case len(p.NodeClasses) > 0 && !slices.Contains(p.NodeClasses, n.NodeClass):
		return "", fmt.Sprintf("its node class is %q", n.NodeClass)
	}
	for _, kind := range wanted {
		if slices.Contains(n.Isolations, kind) {
			return kind, ""
		}
	}
	return "", fmt.Sprintf("it can run %s: %s", first(strings.Join(n.Isolations, ", "), "nothing"), n.Reason)
}

// imagesData is the default image of a kind.
type imagesData struct{ cluster *cluster }

func newImagesData() datasource.DataSource { return &imagesData{} }

type imagesModel struct {
	Kind      types.String `tfsdk:"kind"`
	Namespace types.String `tfsdk:"namespace"`
	Reference types.String `tfsdk:"reference"`
	Digest    types.String `tfsdk:"digest"`
	Source    types.String `tfsdk:"source"`
	SetAt     types.String `tfsdk:"set_at"`
}

func (d *imagesData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_default_images"
}

func (d *imagesData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The default image of a kind: the cluster's catalog record, else the default of this version. Nothing is looked up at a registry.",
		Attributes: map[string]schema.Attribute{
			"kind":      schema.StringAttribute{Required: true, Validators: []validator.String{stringvalidator.OneOf("docker", "apptainer")}, MarkdownDescription: "`docker` or `apptainer`."},
			"namespace": dataNamespace(),
			"reference": schema.StringAttribute{Computed: true, MarkdownDescription: "Its name."},
			"digest":    schema.StringAttribute{Computed: true, MarkdownDescription: "Its digest, where the catalog names one."},
			"source":    schema.StringAttribute{Computed: true, MarkdownDescription: "`catalog` or `built_in`."},
			"set_at":    schema.StringAttribute{Computed: true, MarkdownDescription: "When the catalog was written."},
		},
	}
}

func (d *imagesData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *imagesData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m imagesModel
	client := d.cluster.ask(ctx, req, &m, &m.Namespace, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	kind := m.Kind.ValueString()
	m.Reference, m.Source = types.StringValue(nomadjob.DefaultImages[kind]), types.StringValue("built_in")
	rec, err := d.cluster.records(client).Read(ctx, nomadjob.CatalogKind, m.Namespace.ValueString(), kind)
	var catalog nomadjob.Catalog
	switch {
	case errors.Is(err, nomadjob.ErrNoRecord):
	case err != nil:
		resp.Diagnostics.Append(d.cluster.explain(err, d.cluster.recordOperation(nomadjob.CatalogKind, "read", &baseModel{Namespace: m.Namespace}, "read")))
		return
	case json.Unmarshal(rec.Spec, &catalog) != nil || catalog.Reference == "":
		resp.Diagnostics.AddError("This record cannot be read", fmt.Sprintf("The record catalog/%s names no reference.", kind))
		return
	default:
		m.Reference, m.Source = types.StringValue(catalog.Reference), types.StringValue("catalog")
		m.Digest, m.SetAt = optional(catalog.Digest), optional(catalog.SetAt)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}
