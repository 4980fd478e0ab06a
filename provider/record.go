// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// recordModel is the model of a resource that is one record and nothing else.
type recordModel interface {
	base() *baseModel
	record() *recordPart
	// spec is the record's content; null and unknown parts have their defaults, and known is
	// false where there is an unknown one.
	spec(ctx context.Context) (spec validated, known bool, diags diag.Diagnostics)
	// load takes the content over. What means the same keeps the spelling it has.
	load(ctx context.Context, spec json.RawMessage) diag.Diagnostics
}

// validated is a spec that knows its rules.
type validated interface {
	Validate(name string) error
}

// recordPart are the attributes that only records have.
type recordPart struct {
	ForceDestroy types.Bool   `tfsdk:"force_destroy"`
	Ref          types.String `tfsdk:"ref"`
}

func recordAttributes(word string) map[string]schema.Attribute {
	all := baseAttributes(word)
	all["force_destroy"] = schema.BoolAttribute{
		Optional: true, Computed: true, Default: booldefault.StaticBool(false),
		MarkdownDescription: "Destroy the record also while screens that are not stopped name it. Default: `false`.",
	}
	all["ref"] = schema.StringAttribute{
		Computed:            true,
		MarkdownDescription: "`NAME@HASH` of this version: what screens name, so that a change shows on them in the same plan.",
	}
	return all
}

// recordResource manages one kind of record. M is its model, P a pointer to it.
type recordResource[M any, P interface {
	*M
	recordModel
}] struct {
	kind    nomadjob.Kind
	word    string // for people
	suffix  string // of the resource's type
	schema  func() schema.Schema
	cluster *cluster
}

func (r *recordResource[M, P]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + r.suffix
}

func (r *recordResource[M, P]) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.schema()
}

func (r *recordResource[M, P]) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identitySchema()
}

func (r *recordResource[M, P]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	asCluster(req.ProviderData, &r.cluster)
}

func (r *recordResource[M, P]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	r.cluster.importName(ctx, req, resp)
}

// ValidateConfig reports every fault of what is known.
func (r *recordResource[M, P]) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.Config.Get(ctx, m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	spec, _, diags := m.spec(ctx)
	resp.Diagnostics.Append(diags...)
	addFaults(&resp.Diagnostics, spec.Validate("placeholder")) // the name has its own validator
}

// ModifyPlan is pure: ref, namespace and id follow from what is planned.
func (r *recordResource[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	m := P(new(M))
	resp.Diagnostics.Append(req.Plan.Get(ctx, m)...)
	configured, prior := namespaceIn(ctx, req.Config, &resp.Diagnostics), types.StringNull()
	if !req.State.Raw.IsNull() {
		prior = namespaceIn(ctx, req.State, &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if m.base().settle(r.cluster, configured, prior) {
		resp.RequiresReplace.Append(pathNamespace)
	}
	spec, known, diags := m.spec(ctx)
	resp.Diagnostics.Append(diags...)
	m.record().Ref = types.StringUnknown()
	if known && !m.base().Name.IsUnknown() {
		name := m.base().Name.ValueString()
		addFaults(&resp.Diagnostics, spec.Validate(name))
		text, err := nomadjob.Canonical(spec)
		if err != nil {
			resp.Diagnostics.AddError("Invalid configuration", err.Error())
			return
		}
		m.record().Ref = types.StringValue(nomadjob.Ref(r.kind, name, text))
		if r.cluster != nil {
			r.cluster.planned.put(r.kind, m.record().Ref.ValueString(), text)
		}
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
}

func (r *recordResource[M, P]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.Plan.Get(ctx, m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	rec := r.write(ctx, m, 0, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	setIdentity(ctx, resp.Identity, m.base().identity(r.cluster), &resp.Diagnostics)
	keepIndex(ctx, resp.Private, rec.Index, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *recordResource[M, P]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.State.Get(ctx, m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	b := m.base()
	// First of all: also a resource that is gone must have one.
	setIdentity(ctx, resp.Identity, b.identity(r.cluster), &resp.Diagnostics)
	if !r.cluster.known() {
		return // refreshed when the cluster is known
	}
	client, diags := r.cluster.client(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	rec, err := r.cluster.records(client).Read(ctx, r.kind, b.Namespace.ValueString(), b.Name.ValueString())
	if errors.Is(err, nomadjob.ErrNoRecord) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(r.cluster.explain(err, r.operation("read", b, "read")))
		return
	}
	resp.Diagnostics.Append(m.load(ctx, rec.Spec)...)
	b.ID = types.StringValue(rec.Name + "@" + rec.Namespace)
	m.record().Ref = types.StringValue(rec.Ref())
	if m.record().ForceDestroy.IsNull() {
		m.record().ForceDestroy = types.BoolValue(false)
	}
	keepIndex(ctx, resp.Private, rec.Index, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *recordResource[M, P]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	m, old := P(new(M)), P(new(M))
	resp.Diagnostics.Append(req.Plan.Get(ctx, m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, old)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if !same(ctx, m, old) { // else only the state changes: force_destroy
		rec := r.write(ctx, m, index, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
		keepIndex(ctx, resp.Private, rec.Index, &resp.Diagnostics)
	}
	setIdentity(ctx, resp.Identity, m.base().identity(r.cluster), &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// same says whether two models are the same record, and the same version of it.
func same(ctx context.Context, a, b recordModel) bool {
	first, _, _ := a.spec(ctx)
	second, _, _ := b.spec(ctx)
	one, err := nomadjob.Canonical(first)
	other, err2 := nomadjob.Canonical(second)
	return err == nil && err2 == nil && string(one) == string(other) && a.record().Ref.Equal(b.record().Ref)
}

func (r *recordResource[M, P]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.State.Get(ctx, m)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	client, diags := r.cluster.client(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	b := m.base()
	if !m.record().ForceDestroy.ValueBool() {
		resp.Diagnostics.Append(r.refuseUsed(ctx, b)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	err := r.cluster.records(client).Delete(ctx, r.kind, b.Namespace.ValueString(), b.Name.ValueString(), index)
	resp.Diagnostics.Append(r.failed(err, "delete", b)...)
}

// write puts the model's record in the place of the one with the index.
func (r *recordResource[M, P]) write(ctx context.Context, m P, index uint64, diags *diag.Diagnostics) nomadjob.Record {
	b := m.base()
	spec, _, d := m.spec(ctx)
	diags.Append(d...)
	client, d := r.cluster.client(ctx)
	diags.Append(d...)
	addFaults(diags, spec.Validate(b.Name.ValueString()))
	text, err := nomadjob.Canonical(spec)
	if err != nil {
		diags.AddError("Invalid configuration", err.Error())
	}
	if diags.HasError() {
		return nomadjob.Record{}
	}
	rec, err := r.cluster.records(client).Write(ctx, nomadjob.Record{
		Kind: r.kind, Namespace: b.Namespace.ValueString(), Name: b.Name.ValueString(), Spec: text,
		ManagedBy: "terraform", ChangedBy: "terraform", ChangedAt: time.Now(),
	}, index)
	var lost *nomadjob.ConflictError
	if errors.As(err, &lost) && index == 0 {
		diags.Append(exists(r.word, b.Name.ValueString(), b.Namespace.ValueString(), "botscreen_"+r.suffix))
		return rec
	}
	diags.Append(r.failed(err, "write", b)...)
	return rec
}

func (r *recordResource[M, P]) operation(verb string, b *baseModel, capability string) operation {
	return r.cluster.recordOperation(r.kind, verb, b, capability)
}

// recordOperation is a call on a record, and the right that it needs.
func (c *cluster) recordOperation(kind nomadjob.Kind, verb string, b *baseModel, capability string) operation {
	return operation{
		doing:     fmt.Sprintf("%s variables under %s/%s", verb, c.prefix, kind),
		namespace: b.Namespace.ValueString(),
		needs: fmt.Sprintf("variables {\n  path \"%s/*\" {\n    capabilities = [\"list\", \"read\", \"write\", \"destroy\"]  # lacks: %s\n  }\n}",
			c.prefix, capability),
	}
}

func (r *recordResource[M, P]) failed(err error, verb string, b *baseModel) diag.Diagnostics {
	return r.cluster.recordFailed(err, r.kind, r.word, verb, b)
}

// recordFailed tells of a write or delete that was not done; nothing where err is nil.
func (c *cluster) recordFailed(err error, kind nomadjob.Kind, word, verb string, b *baseModel) diag.Diagnostics {
	var diags diag.Diagnostics
	var lost *nomadjob.ConflictError
	switch {
	case err == nil:
	case errors.As(err, &lost):
		diags.Append(changed(word, b.Name.ValueString(), lost))
	default:
		capability := verb
		if verb == "delete" {
			capability = "destroy"
		}
		diags.Append(c.explain(err, c.recordOperation(kind, verb, b, capability)))
	}
	return diags
}
