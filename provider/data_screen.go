// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// screenData reads one screen.
type screenData struct{ cluster *cluster }

func newScreenData() datasource.DataSource { return &screenData{} }

func (d *screenData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_screen"
}

func (d *screenData) Schema(ctx context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	all := asData(screenSchema(ctx))
	all["job_id"] = schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: "ID of the Nomad job. Default: `botscreen-NAME`."}
	delete(all, "drift") // a resource's: it knows what was wanted
	resp.Schema = schema.Schema{MarkdownDescription: "A screen that exists, by name.", Attributes: all}
}

func (d *screenData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *screenData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	m := blankScreen()
	for name, into := range map[string]*types.String{"name": &m.Name, "namespace": &m.Namespace, "job_id": &m.JobID} {
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(name), into)...)
	}
	client, diags := d.cluster.client(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.settle(d.cluster, m.Namespace, types.StringNull())
	if m.JobID.IsNull() {
		m.JobID = types.StringValue("botscreen-" + m.Name.ValueString())
	}
	found, err := nomadjob.Lookup(ctx, client, m.Namespace.ValueString(), m.JobID.ValueString())
	switch {
	case connection.Classify(err) == connection.NotFound || err == nil && !nomadjob.IsScreen(found.Job):
		resp.Diagnostics.AddAttributeError(path.Root("name"), fmt.Sprintf("No screen %q in namespace %q", m.Name.ValueString(), m.Namespace.ValueString()),
			fmt.Sprintf("There is no job %s with a task of the driver %s. Check name, job_id and namespace.", m.JobID.ValueString(), nomadjob.Driver))
		return
	case err != nil:
		resp.Diagnostics.Append(d.cluster.explain(err, readJob(&m)))
		return
	}
	m.adopt(ctx, found.Job, &resp.Diagnostics)
	m.observe(ctx, found, nil, &resp.Diagnostics)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(copyModel(ctx, screenSchema(ctx), m, &resp.State)...)
	}
}

// screensData lists the screens of a namespace: two requests, however many there are.
type screensData struct{ cluster *cluster }

func newScreensData() datasource.DataSource { return &screensData{} }

type screensModel struct {
	Namespace types.String `tfsdk:"namespace"`
	Profile   types.String `tfsdk:"profile"`
	Status    types.String `tfsdk:"status"`
	Labels    types.Map    `tfsdk:"labels"`
	Screens   types.List   `tfsdk:"screens"`
}

type screenItem struct {
	Name      string `tfsdk:"name"`
	Namespace string `tfsdk:"namespace"`
	JobID     string `tfsdk:"job_id"`
	Profile   string `tfsdk:"profile"`
	Status    string `tfsdk:"status"`
	Isolation string `tfsdk:"isolation"`
	Holder    string `tfsdk:"holder"`
	NodeName  string `tfsdk:"node_name"`
	AllocID   string `tfsdk:"alloc_id"`
}

var screenItemType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name": types.StringType, "namespace": types.StringType, "job_id": types.StringType, "profile": types.StringType, "status": types.StringType,
	"isolation": types.StringType, "holder": types.StringType, "node_name": types.StringType, "alloc_id": types.StringType,
}}

func (d *screensData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_screens"
}

func (d *screensData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The screens that were declared in a namespace, sorted by name.",
		Attributes: map[string]schema.Attribute{
			"namespace": dataNamespace(),
			"profile":   schema.StringAttribute{Optional: true, MarkdownDescription: "Only screens of this profile."},
			"status":    schema.StringAttribute{Optional: true, Validators: []validator.String{stringvalidator.OneOf(statusWords()...)}, MarkdownDescription: "Only screens with this status."},
			"labels":    schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: labelsOfScreens},
			"screens": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "What was found.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name": computedText("Name."), "namespace": computedText("Nomad namespace."), "job_id": computedText("ID of its job."), "profile": computedText("Name of its profile."),
				"status": computedText("What it is doing."), "isolation": computedText("Where it runs."), "holder": computedText("Who may send input: `agent` or `human`; empty where nobody."),
				"node_name": computedText("Its node."), "alloc_id": computedText("Its newest allocation."),
			}}},
		},
	}
}

func (d *screensData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *screensData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m screensModel
	client := d.cluster.ask(ctx, req, &m, &m.Namespace, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	items, diags := d.cluster.screens(ctx, client, m.Namespace.ValueString(), chosen{m.Profile, m.Status, m.Labels})
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	list, diags := types.ListValueFrom(ctx, screenItemType, items)
	resp.Diagnostics.Append(diags...)
	m.Screens = list
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

const labelsOfScreens = "Only screens whose profile has all of these labels. Their profiles are read for it, one by one."

// chosen says which screens a list is of; what is null chooses none.
type chosen struct {
	profile, status types.String
	labels          types.Map
}

// screens are the declared screens of a namespace whose records are below the provider's
// prefix, sorted by name: two requests, however many there are, and one for each profile
// where labels choose.
func (c *cluster) screens(ctx context.Context, client *api.Client, namespace string, want chosen) ([]screenItem, diag.Diagnostics) {
	all, err := nomadjob.ListDeclared(ctx, client, namespace)
	if err != nil {
		return nil, diag.Diagnostics{c.explain(err, operation{doing: "list jobs and allocations", namespace: namespace, needs: `capabilities = ["list-jobs", "read-job"]`})}
	}
	items := []screenItem{}
	for _, one := range all {
		item := itemOf(one)
		if first(one.Job.Meta[nomadjob.MetaRecords], nomadjob.DefaultPrefix) == c.prefix && !wrong(want.profile, item.Profile) && !wrong(want.status, item.Status) {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b screenItem) int { return strings.Compare(a.Name, b.Name) })
	return c.labelled(ctx, client, namespace, items, want.labels)
}

// labelled are the screens whose profile has all of the labels. One whose profile is gone
// has none.
func (c *cluster) labelled(ctx context.Context, client *api.Client, namespace string, items []screenItem, wanted types.Map) ([]screenItem, diag.Diagnostics) {
	if len(wanted.Elements()) == 0 {
		return items, nil
	}
	left, seen := []screenItem{}, map[string]bool{}
	for _, item := range items {
		has, known := seen[item.Profile]
		if !known {
			rec, err := c.records(client).Read(ctx, nomadjob.ProfileKind, namespace, item.Profile)
			var m profileModel
			switch {
			case errors.Is(err, nomadjob.ErrNoRecord):
			case err != nil:
				return nil, diag.Diagnostics{c.explain(err, c.recordOperation(nomadjob.ProfileKind, "read", &baseModel{Namespace: types.StringValue(namespace)}, "read"))}
			default:
				if diags := m.load(ctx, rec.Spec); diags.HasError() {
					return nil, diags
				}
				has = hasAll(m.Labels, wanted)
			}
			seen[item.Profile] = has
		}
		if has {
			left = append(left, item)
		}
	}
	return left, nil
}

func itemOf(d nomadjob.DeclaredStub) screenItem {
	profile, _, _ := strings.Cut(d.Job.Meta[nomadjob.MetaProfile], "@")
	return screenItem{
		Name: d.Job.Meta[nomadjob.MetaName], Namespace: d.Job.Namespace, JobID: d.Job.ID, Profile: profile, Status: string(d.Status),
		Isolation: d.Screen.Isolation, Holder: d.Screen.Holder, NodeName: d.Screen.Node, AllocID: d.Screen.Alloc,
	}
}
