// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	rschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// dataNot are attributes of resources that say how to manage, not what there is.
var dataNot = []string{"force_destroy", "timeouts", "wait_for", "purge_on_destroy", "force", "run_policy", "restart_triggers", "recorded", "check_error",
	"offered_reference", "offered_digest", "update_available"}

// asData makes the attributes of a resource those of a data source: all computed, but the
// name that is looked for.
func asData(resource rschema.Schema) map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for name, a := range resource.Attributes {
		out[name] = computedAttribute(a)
	}
	for _, name := range dataNot {
		delete(out, name)
	}
	out["name"] = schema.StringAttribute{Required: true, Validators: []validator.String{nameValidator{}}, MarkdownDescription: "The name."}
	out["namespace"] = dataNamespace()
	return out
}

func computedAttribute(a rschema.Attribute) schema.Attribute {
	text := a.GetMarkdownDescription()
	switch a := a.(type) {
	case rschema.StringAttribute:
		return schema.StringAttribute{Computed: true, MarkdownDescription: text}
	case rschema.Int64Attribute:
		return schema.Int64Attribute{Computed: true, MarkdownDescription: text}
	case rschema.BoolAttribute:
		return schema.BoolAttribute{Computed: true, MarkdownDescription: text}
	case rschema.MapAttribute:
		return schema.MapAttribute{Computed: true, ElementType: a.ElementType, MarkdownDescription: text}
	case rschema.ListAttribute:
		return schema.ListAttribute{Computed: true, ElementType: a.ElementType, MarkdownDescription: text}
	case rschema.SetAttribute:
		return schema.SetAttribute{Computed: true, ElementType: a.ElementType, MarkdownDescription: text}
	case rschema.ListNestedAttribute:
		return schema.ListNestedAttribute{Computed: true, MarkdownDescription: text, NestedObject: schema.NestedAttributeObject{Attributes: computedAttributes(a.NestedObject.Attributes)}}
	case rschema.SingleNestedAttribute:
		return schema.SingleNestedAttribute{Computed: true, MarkdownDescription: text, Attributes: computedAttributes(a.Attributes)}
	}
	panic(fmt.Sprintf("an attribute of type %T", a)) // a new kind in a schema: the first test that makes the schema finds it
}

func computedAttributes(all map[string]rschema.Attribute) map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for name, a := range all {
		out[name] = computedAttribute(a)
	}
	return out
}

// copyModel writes a resource's model into a data source's state, as far as it has the
// attributes.
func copyModel(ctx context.Context, resource rschema.Schema, model any, into *tfsdk.State) diag.Diagnostics {
	var diags diag.Diagnostics
	whole := tfsdk.State{Schema: resource}
	diags.Append(whole.Set(ctx, model)...)
	if diags.HasError() {
		return diags
	}
	for name := range into.Schema.GetAttributes() {
		var v attr.Value
		diags.Append(whole.GetAttribute(ctx, path.Root(name), &v)...)
		if v != nil {
			diags.Append(into.SetAttribute(ctx, path.Root(name), v)...)
		}
	}
	return diags
}

// recordData reads one record.
type recordData struct {
	kind    nomadjob.Kind
	word    string
	suffix  string
	schema  func() rschema.Schema
	model   func() (base *baseModel, load func(context.Context, nomadjob.Record) diag.Diagnostics, model any)
	cluster *cluster
}

func newProfileData() datasource.DataSource {
	return &recordData{kind: nomadjob.ProfileKind, word: "profile", suffix: "profile", schema: profileSchema, model: modelOf[profileModel, *profileModel]}
}

func newPlacementData() datasource.DataSource {
	return &recordData{kind: nomadjob.PlacementKind, word: "placement", suffix: "placement", schema: placementSchema, model: modelOf[placementModel, *placementModel]}
}

func newImageData() datasource.DataSource {
	return &recordData{kind: nomadjob.ImageKind, word: "sandbox image", suffix: "sandbox_image", schema: imageSchema,
		model: func() (*baseModel, func(context.Context, nomadjob.Record) diag.Diagnostics, any) {
			m := &imageModel{}
			return &m.baseModel, func(_ context.Context, rec nomadjob.Record) diag.Diagnostics {
				var diags diag.Diagnostics
				m.load(rec, &diags)
				return diags
			}, m
		}}
}

func modelOf[M any, P interface {
	*M
	recordModel
}]() (*baseModel, func(context.Context, nomadjob.Record) diag.Diagnostics, any) {
	m := P(new(M))
	return m.base(), func(ctx context.Context, rec nomadjob.Record) diag.Diagnostics {
		m.record().Ref = types.StringValue(rec.Ref())
		return m.load(ctx, rec.Spec)
	}, m
}

func (d *recordData) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.suffix
}

func (d *recordData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{MarkdownDescription: "A " + d.word + " that exists, by name.", Attributes: asData(d.schema())}
}

func (d *recordData) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	asCluster(req.ProviderData, &d.cluster)
}

func (d *recordData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	b, load, model := d.model()
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("name"), &b.Name)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("namespace"), &b.Namespace)...)
	client, diags := d.cluster.client(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	b.settle(d.cluster, b.Namespace, types.StringNull())
	rec, err := d.cluster.records(client).Read(ctx, d.kind, b.Namespace.ValueString(), b.Name.ValueString())
	switch {
	case errors.Is(err, nomadjob.ErrNoRecord):
		resp.Diagnostics.AddAttributeError(path.Root("name"), fmt.Sprintf("No %s %q in namespace %q", d.word, b.Name.ValueString(), b.Namespace.ValueString()),
			"There is no such record. Check name and namespace.")
		return
	case err != nil:
		resp.Diagnostics.Append(d.cluster.explain(err, d.cluster.recordOperation(d.kind, "read", b, "read")))
		return
	}
	resp.Diagnostics.Append(load(ctx, rec)...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(copyModel(ctx, d.schema(), model, &resp.State)...)
	}
}
