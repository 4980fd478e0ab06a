// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

type placementModel struct {
	baseModel
	recordPart
	Isolation            types.String `tfsdk:"isolation"`
	IsolationOrder       types.List   `tfsdk:"isolation_order"`
	AllowUnsandboxedHost types.Bool   `tfsdk:"allow_unsandboxed_host"`
	NodePool             types.String `tfsdk:"node_pool"`
	NodeClasses          types.Set    `tfsdk:"node_classes"`
	Datacenters          types.Set    `tfsdk:"datacenters"`
	Constraints          types.List   `tfsdk:"constraints"`
	Priority             types.Int64  `tfsdk:"priority"`
}

// constraintModel is one element of constraints.
type constraintModel struct {
	Attribute types.String `tfsdk:"attribute"`
	Operator  types.String `tfsdk:"operator"`
	Value     types.String `tfsdk:"value"`
}

var constraintType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"attribute": types.StringType, "operator": types.StringType, "value": types.StringType,
}}

func newPlacement() resource.Resource {
	return &recordResource[placementModel, *placementModel]{
		kind: nomadjob.PlacementKind, word: "placement", suffix: "placement", schema: placementSchema,
	}
}

func words(list ...string) []attr.Value {
	out := make([]attr.Value, len(list))
	for i, w := range list {
		out[i] = types.StringValue(w)
	}
	return out
}

func placementSchema() schema.Schema {
	d := nomadjob.DefaultPlacement()
	all := recordAttributes("placement")
	for name, a := range map[string]schema.Attribute{
		"isolation": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(d.Isolation),
			MarkdownDescription: "Where desktops run: `auto` (default: the first of `isolation_order` that works on the node, never the host), `docker`, `apptainer` or `host`."},
		"isolation_order": schema.ListAttribute{Optional: true, Computed: true, ElementType: types.StringType,
			Default:             listdefault.StaticValue(types.ListValueMust(types.StringType, words(d.IsolationOrder...))),
			MarkdownDescription: "What `auto` may choose from: `docker`, `apptainer`, and `host` only together with `allow_unsandboxed_host`. Default: `[\"docker\", \"apptainer\"]`."},
		"allow_unsandboxed_host": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "The named opt-in for desktops directly on the host, outside of any sandbox. Required for `isolation = \"host\"`. The node's operator must allow it as well. Default: `false`."},
		"node_pool": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(d.NodePool),
			MarkdownDescription: "Nomad node pool. Default: `default`."},
		"node_classes": schema.SetAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Node classes that are acceptable. Default: any."},
		"datacenters": schema.SetAttribute{Optional: true, Computed: true, ElementType: types.StringType,
			Default:             setdefault.StaticValue(types.SetValueMust(types.StringType, words(d.Datacenters...))),
			MarkdownDescription: "Datacenters that are acceptable; `*` is a wildcard. Default: `[\"*\"]`."},
		"constraints": schema.ListNestedAttribute{Optional: true, MarkdownDescription: "Further constraints, as in a Nomad job.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"attribute": schema.StringAttribute{Required: true, MarkdownDescription: "What is compared, for example `$${attr.kernel.version}` (with two dollars in HCL)."},
				"operator": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("="),
					MarkdownDescription: "Nomad's operator, for example `version` or `regexp`. Default: `=`."},
				"value": schema.StringAttribute{Optional: true, MarkdownDescription: "What it is compared with; none for `is_set` and `is_not_set`."},
			}}},
		"priority": schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(d.Priority),
			MarkdownDescription: "Nomad's job priority, 1 to 100. Default: 50."},
	} {
		all[name] = a
	}
	return schema.Schema{
		MarkdownDescription: "The rule that picks isolation and nodes for screens. Desktops directly on the host are refused unless `allow_unsandboxed_host` says otherwise: " +
			"in the configuration, in the plan, in the apply and on the node, and nothing ever falls back to the host.",
		Attributes: all,
	}
}

func (m *placementModel) base() *baseModel    { return &m.baseModel }
func (m *placementModel) record() *recordPart { return &m.recordPart }

func (m *placementModel) spec(ctx context.Context) (validated, bool, diag.Diagnostics) {
	p := nomadjob.DefaultPlacement()
	r := reader{ctx: ctx, known: true}
	r.text(m.Description, &p.Description)
	r.text(m.Isolation, &p.Isolation)
	r.words(m.IsolationOrder, &p.IsolationOrder)
	r.flag(m.AllowUnsandboxedHost, &p.AllowUnsandboxedHost)
	if m.AllowUnsandboxedHost.IsUnknown() {
		p.AllowUnsandboxedHost = true // judged when it is known
	}
	r.text(m.NodePool, &p.NodePool)
	r.words(m.NodeClasses, &p.NodeClasses)
	r.words(m.Datacenters, &p.Datacenters)
	p.NodeClasses, p.Datacenters = sorted(p.NodeClasses), sorted(p.Datacenters)
	r.number(m.Priority, &p.Priority)
	p.Constraints = r.constraints(m.Constraints)
	p = withoutUnknown(p, m)
	return p, r.known, r.diags
}

// withoutUnknown gives lists with unknown elements a content that passes for now.
func withoutUnknown(p nomadjob.Placement, m *placementModel) nomadjob.Placement {
	d := nomadjob.DefaultPlacement()
	if len(p.Datacenters) == 0 && len(m.Datacenters.Elements()) > 0 {
		p.Datacenters = d.Datacenters
	}
	if len(p.IsolationOrder) == 0 && len(m.IsolationOrder.Elements()) > 0 {
		p.IsolationOrder = d.IsolationOrder
	}
	return p
}

func (r *reader) constraints(list types.List) []nomadjob.Constraint {
	if !r.has(list) {
		return nil
	}
	var out []nomadjob.Constraint
	for _, one := range list.Elements() {
		object, ok := one.(types.Object)
		if !ok || !r.has(object) {
			continue
		}
		var m constraintModel
		r.diags.Append(object.As(r.ctx, &m, objectAs)...)
		c := nomadjob.Constraint{Attribute: "${attr.unknown}", Operator: "=", Value: "unknown"}
		if !m.Value.IsUnknown() {
			c.Value = ""
		}
		r.text(m.Attribute, &c.Attribute)
		r.text(m.Operator, &c.Operator)
		r.text(m.Value, &c.Value)
		if m.Operator.IsUnknown() && c.Value == "" {
			c.Operator = "is_set"
		}
		out = append(out, c)
	}
	return out
}

func (m *placementModel) load(ctx context.Context, spec json.RawMessage) diag.Diagnostics {
	p := nomadjob.DefaultPlacement()
	if err := json.Unmarshal(spec, &p); err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("This record cannot be read", "The placement's record: "+err.Error())}
	}
	var diags diag.Diagnostics
	m.Description = textOr(p.Description, m.Description)
	m.Isolation, m.AllowUnsandboxedHost = types.StringValue(p.Isolation), types.BoolValue(p.AllowUnsandboxedHost)
	m.IsolationOrder = listOf(ctx, p.IsolationOrder, &diags)
	m.NodePool, m.Priority = types.StringValue(p.NodePool), types.Int64Value(p.Priority)
	m.Datacenters = setOf(ctx, p.Datacenters, &diags)
	if len(p.NodeClasses) > 0 || m.NodeClasses.IsNull() || len(m.NodeClasses.Elements()) > 0 {
		m.NodeClasses = types.SetNull(types.StringType)
	}
	if len(p.NodeClasses) > 0 {
		m.NodeClasses = setOf(ctx, p.NodeClasses, &diags)
	}
	m.Constraints = constraintsOr(ctx, p.Constraints, m.Constraints, &diags)
	return diags
}

func constraintsOr(ctx context.Context, list []nomadjob.Constraint, prior types.List, diags *diag.Diagnostics) types.List {
	if len(list) == 0 && (prior.IsNull() || len(prior.Elements()) > 0) {
		return types.ListNull(constraintType)
	}
	models := make([]constraintModel, len(list))
	for i, c := range list {
		models[i] = constraintModel{Attribute: types.StringValue(c.Attribute), Operator: types.StringValue(c.Operator), Value: types.StringNull()}
		if c.Value != "" {
			models[i].Value = types.StringValue(c.Value)
		}
	}
	out, d := types.ListValueFrom(ctx, constraintType, models)
	diags.Append(d...)
	return out
}
