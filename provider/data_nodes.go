// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// nodesData lists nodes: one request, however many there are.
type nodesData struct{ cluster *cluster }

func newNodesData() datasource.DataSource { return &nodesData{} }

type nodesModel struct {
	NodePool   types.String `tfsdk:"node_pool"`
	NodeClass  types.String `tfsdk:"node_class"`
	Datacenter types.String `tfsdk:"datacenter"`
	Isolation  types.String `tfsdk:"isolation"`
	Filter     types.String `tfsdk:"filter"`
	Nodes      types.List   `tfsdk:"nodes"`
}

type nodeItem struct {
	ID            string   `tfsdk:"id"`
	Name          string   `tfsdk:"name"`
	Datacenter    string   `tfsdk:"datacenter"`
	NodePool      string   `tfsdk:"node_pool"`
	NodeClass     string   `tfsdk:"node_class"`
	Isolations    []string `tfsdk:"isolations"`
	DriverVersion string   `tfsdk:"driver_version"`
	Healthy       bool     `tfsdk:"healthy"`
	Reason        string   `tfsdk:"reason"`
}

var nodeItemType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"id": types.StringType, "name": types.StringType, "datacenter": types.StringType, "node_pool": types.StringType, "node_class": types.StringType,
	"isolations": types.SetType{ElemType: types.StringType}, "driver_version": types.StringType, "healthy": types.BoolType, "reason": types.StringType,
}}

func (d *nodesData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_nodes"
}

func (d *nodesData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	only := func(what string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: "Only nodes " + what + "."}
	}
	isolation := only("that can run this isolation now: `host`, `docker` or `apptainer`")
	isolation.Validators = []validator.String{stringvalidator.OneOf("host", "docker", "apptainer")}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The nodes that have the driver `botscreen`, and what they can run. Needs `node { policy = \"read\" }`.",
		Attributes: map[string]schema.Attribute{
			"node_pool": only("of this pool"), "node_class": only("of this class"), "datacenter": only("of this datacenter"), "isolation": isolation,
			"filter": schema.StringAttribute{Optional: true, MarkdownDescription: "A filter expression of Nomad's, which Nomad itself applies."},
			"nodes": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "What was found, sorted by name.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"id": computedText("ID."), "name": computedText("Name."), "datacenter": computedText("Datacenter."), "node_pool": computedText("Node pool."), "node_class": computedText("Node class."),
				"isolations":     schema.SetAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "What it can run now."},
				"driver_version": computedText("Version of the driver."), "healthy": schema.BoolAttribute{Computed: true, MarkdownDescription: "The driver is healthy and the node takes work."},
				"reason": computedText("Why not, or what is off, in the driver's words."),
			}}},
		},
	}
}

func (d *nodesData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *nodesData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m nodesModel
	client := d.cluster.ask(ctx, req, &m, nil, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	all, diags := d.cluster.nodes(ctx, client, m.Filter.ValueString())
	resp.Diagnostics.Append(diags...)
	items := []nodeItem{}
	for _, n := range all {
		if wrong(m.NodePool, n.NodePool) || wrong(m.NodeClass, n.NodeClass) || wrong(m.Datacenter, n.Datacenter) ||
			!m.Isolation.IsNull() && !slices.Contains(n.Isolations, m.Isolation.ValueString()) {
			continue
		}
		items = append(items, n)
	}
	list, diags := types.ListValueFrom(ctx, nodeItemType, items)
	resp.Diagnostics.Append(diags...)
	m.Nodes = list
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func wrong(wanted types.String, found string) bool {
	return !wanted.IsNull() && wanted.ValueString() != found
}

// nodes are those with the driver. Their drivers' attributes are in the list itself.
func (c *cluster) nodes(ctx context.Context, client *api.Client, filter string) ([]nodeItem, diag.Diagnostics) {
	var diags diag.Diagnostics
	all, _, err := client.Nodes().List((&api.QueryOptions{Filter: filter}).WithContext(ctx))
	if err != nil {
		diags.Append(c.explain(err, operation{doing: "list nodes", namespace: "any", needs: "node {\n  policy = \"read\"\n}  # outside of the namespace's block"}))
		return nil, diags
	}
	var out []nodeItem
	for _, n := range all {
		driver := n.Drivers[nomadjob.Driver]
		if driver == nil || !driver.Detected {
			continue
		}
		item := nodeItem{
			ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, NodePool: n.NodePool, NodeClass: n.NodeClass, Isolations: []string{},
			DriverVersion: driver.Attributes["driver.botscreen.version"], Reason: driver.HealthDescription,
			Healthy: driver.Healthy && n.Status == "ready" && n.SchedulingEligibility == "eligible" && !n.Drain,
		}
		if words := driver.Attributes["driver.botscreen.isolations"]; words != "" {
			item.Isolations = strings.Split(words, ",")
		}
		out = append(out, item)
	}
	slices.SortFunc(out, func(a, b nodeItem) int { return strings.Compare(a.Name, b.Name) })
	return out, diags
}
