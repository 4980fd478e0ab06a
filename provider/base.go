// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/screen"
)

// baseModel is what every resource has.
type baseModel struct {
	ID          types.String `tfsdk:"id"`
	Name        types.String `tfsdk:"name"`
	Namespace   types.String `tfsdk:"namespace"`
	Description types.String `tfsdk:"description"`
}

// identityModel is a resource's identity, for Terraform and OpenTofu from 1.12.
type identityModel struct {
	Region    types.String `tfsdk:"region"`
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
}

func identitySchema() identityschema.Schema {
	return identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"region":    identityschema.StringAttribute{OptionalForImport: true, Description: "Nomad region; default: the provider's."},
		"namespace": identityschema.StringAttribute{OptionalForImport: true, Description: "Nomad namespace; default: the provider's."},
		"name":      identityschema.StringAttribute{RequiredForImport: true, Description: "The name."},
	}}
}

func (b baseModel) identity(c *cluster) identityModel {
	region := types.StringNull()
	if c != nil && c.region != "" {
		region = types.StringValue(c.region)
	}
	return identityModel{Region: region, Namespace: b.Namespace, Name: b.Name}
}

// baseAttributes are those of baseModel.
func baseAttributes(word string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id": schema.StringAttribute{
			Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			MarkdownDescription: "`NAME@NAMESPACE`, which is also what `terraform import` takes.",
		},
		"name": schema.StringAttribute{
			Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}, Validators: []validator.String{nameValidator{}},
			MarkdownDescription: fmt.Sprintf("Name of the %s: 1 to 63 lower-case letters, digits and hyphens. Another name is another %s.", word, word),
		},
		"namespace": schema.StringAttribute{
			Optional: true, Computed: true, Validators: []validator.String{namespaceValidator{}},
			MarkdownDescription: "Nomad namespace. Default: the provider's. Another one is a replacement.",
		},
		"description": schema.StringAttribute{
			Optional: true, Validators: []validator.String{stringvalidator.LengthAtMost(256)},
			MarkdownDescription: "A sentence for people, at most 256 bytes. Changes nothing that runs.",
		},
	}
}

type nameValidator struct{ describe }

func (nameValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text, ok := value(req); ok && !screen.Profile(text).Valid() {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid name",
			fmt.Sprintf("`name` must be 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit; it is %q.", text))
	}
}

// settle gives namespace and id their planned values: the namespace of the provider where
// the configuration names none. It says whether another namespace makes it another thing.
func (b *baseModel) settle(c *cluster, configured, prior types.String) (replace bool) {
	if configured.IsNull() && c != nil {
		b.Namespace = c.namespace
		if c.namespace.IsUnknown() && !prior.IsNull() {
			b.Namespace = prior
		}
	}
	b.ID = types.StringUnknown()
	if !b.Name.IsUnknown() && !b.Namespace.IsUnknown() {
		b.ID = types.StringValue(b.Name.ValueString() + "@" + b.Namespace.ValueString())
	}
	return !prior.IsNull() && !b.Namespace.IsUnknown() && !b.Namespace.Equal(prior)
}

// getter is a plan, a state or a configuration.
type getter interface {
	GetAttribute(ctx context.Context, p path.Path, target any) diag.Diagnostics
}

func namespaceIn(ctx context.Context, g getter, diags *diag.Diagnostics) types.String {
	var v types.String
	diags.Append(g.GetAttribute(ctx, path.Root("namespace"), &v)...)
	return v
}

// importName takes NAME, NAME@NAMESPACE or an identity apart and starts a state with it.
func (c *cluster) importName(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var id identityModel
	if req.ID == "" && req.Identity != nil && !req.Identity.Raw.IsNull() {
		resp.Diagnostics.Append(req.Identity.Get(ctx, &id)...)
	} else {
		name, namespace, found := strings.Cut(req.ID, "@")
		id.Name = types.StringValue(name)
		id.Namespace = types.StringNull()
		if found {
			id.Namespace = types.StringValue(namespace)
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if !screen.Profile(id.Name.ValueString()).Valid() || !id.Namespace.IsNull() && !namespaceForm.MatchString(id.Namespace.ValueString()) {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf("It must be NAME or NAME@NAMESPACE; it is %q.", req.ID))
		return
	}
	if !c.known() {
		_, diags := c.client(ctx)
		resp.Diagnostics.Append(diags...)
		return
	}
	if r := id.Region.ValueString(); r != "" && c.region != "" && r != c.region {
		resp.Diagnostics.AddError("Another region", fmt.Sprintf("The identity names region %q, the provider %q. Use a provider with that region.", r, c.region))
		return
	}
	if id.Namespace.IsNull() {
		id.Namespace = c.namespace
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), id.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("namespace"), id.Namespace)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id.Name.ValueString()+"@"+id.Namespace.ValueString())...)
	setIdentity(ctx, resp.Identity, id, &resp.Diagnostics)
}

// setIdentity does nothing where the CLI knows no identities.
func setIdentity(ctx context.Context, into *tfsdk.ResourceIdentity, id identityModel, diags *diag.Diagnostics) {
	if into != nil {
		diags.Append(into.Set(ctx, id)...)
	}
}

// casKey is where a resource's private state keeps the index that its next write checks.
const casKey = "cas"

// private is a resource's private state, in requests and responses.
type privateReader interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

type privateWriter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// indexOf is the index that the refreshed state was read at; 0: none was kept.
func indexOf(ctx context.Context, p privateReader, diags *diag.Diagnostics) uint64 {
	text, d := p.GetKey(ctx, casKey)
	diags.Append(d...)
	var index uint64
	if len(text) > 0 && json.Unmarshal(text, &index) != nil {
		diags.AddError("The state of this resource is damaged", "Its private part holds no index. Run `terraform apply -refresh-only`.")
	}
	return index
}

func keepIndex(ctx context.Context, p privateWriter, index uint64, diags *diag.Diagnostics) {
	text, _ := json.Marshal(index)
	diags.Append(p.SetKey(ctx, casKey, text)...)
}
