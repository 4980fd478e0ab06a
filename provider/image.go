// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/image"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

type imageResource struct{ cluster *cluster }

var (
	_ resource.ResourceWithIdentity       = (*imageResource)(nil)
	_ resource.ResourceWithImportState    = (*imageResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*imageResource)(nil)
	_ resource.ResourceWithValidateConfig = (*imageResource)(nil)
)

func newImage() resource.Resource { return &imageResource{} }

func (r *imageResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_sandbox_image"
}

func (r *imageResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = imageSchema()
}

func (r *imageResource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identitySchema()
}

func (r *imageResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	asCluster(req.ProviderData, &r.cluster)
}

func (r *imageResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	r.cluster.importName(ctx, req, resp)
}

// offers looks each reference up once in a run.
type offers struct {
	mu    sync.Mutex // guards found
	found map[string]offer
}

type offer struct {
	digest string
	err    error
}

func (o *offers) digest(ctx context.Context, source image.Source, kind image.Kind, text string) (string, error) {
	ref, err := image.Parse(kind, text)
	if err != nil {
		return "", err
	}
	key := string(source) + " " + text
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.found[key]; ok {
		return known.digest, known.err
	}
	if o.found == nil {
		o.found = map[string]offer{}
	}
	digest, err := image.Digest(ctx, source, ref)
	o.found[key] = offer{digest, err}
	return digest, err
}

// offered is the reference and digest that the cluster's catalog, or else the reference
// itself, has now. written is the user's reference, or empty.
func (r *imageResource) offered(ctx context.Context, client *api.Client, m *imageModel, written string) (reference, digest string, err error) {
	kind := string(m.kind())
	var catalog nomadjob.Catalog
	rec, err := r.cluster.records(client).Read(ctx, nomadjob.CatalogKind, m.Namespace.ValueString(), kind)
	switch {
	case err == nil:
		if json.Unmarshal(rec.Spec, &catalog) != nil {
			return "", "", fmt.Errorf("the record catalog/%s cannot be read", kind)
		}
	case !errors.Is(err, nomadjob.ErrNoRecord):
		return "", "", fmt.Errorf("the record catalog/%s: %w", kind, err)
	}
	reference = first(written, catalog.Reference, nomadjob.DefaultImages[kind])
	if catalog.Reference == reference && image.ValidDigest(catalog.Digest) {
		return reference, catalog.Digest, nil
	}
	digest, err = r.cluster.offers.digest(ctx, image.Source(m.Source.ValueString()), m.kind(), reference)
	return reference, digest, err
}

func (r *imageResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m, config imageModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	index := r.put(ctx, &m, &config, 0, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	keepIndex(ctx, resp.Private, index, &resp.Diagnostics)
	setIdentity(ctx, resp.Identity, m.identity(r.cluster), &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *imageResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, config imageModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	setIdentity(ctx, resp.Identity, m.identity(r.cluster), &resp.Diagnostics)
	index = r.put(ctx, &m, &config, index, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	keepIndex(ctx, resp.Private, index, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// put looks up what the plan left open, and writes the record.
func (r *imageResource) put(ctx context.Context, m, config *imageModel, index uint64, diags *diag.Diagnostics) uint64 {
	client, d := r.cluster.client(ctx)
	diags.Append(d...)
	if diags.HasError() {
		return 0
	}
	if m.OfferedDigest.IsUnknown() || m.Reference.IsUnknown() {
		if r.resolve(ctx, client, m, config, diags); diags.HasError() {
			return 0
		}
	}
	m.derive()
	spec := m.spec()
	spec.Written = !config.Reference.IsNull()
	text, err := nomadjob.Canonical(spec)
	if err != nil {
		diags.AddError("Invalid configuration", err.Error())
		return 0
	}
	rec, err := r.cluster.records(client).Write(ctx, nomadjob.Record{
		Kind: nomadjob.ImageKind, Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString(), Spec: text,
		ManagedBy: "terraform", ChangedBy: "terraform", ChangedAt: time.Now(),
	}, index)
	var lost *nomadjob.ConflictError
	if errors.As(err, &lost) && index == 0 {
		diags.Append(exists("sandbox image", m.Name.ValueString(), m.Namespace.ValueString(), "botscreen_sandbox_image"))
		return 0
	}
	diags.Append(r.cluster.recordFailed(err, nomadjob.ImageKind, "sandbox image", "write", &m.baseModel)...)
	return rec.Index
}

// resolve fills in what was unknown: offered, decided and, where it is not pinned, digest.
func (r *imageResource) resolve(ctx context.Context, client *api.Client, m, config *imageModel, diags *diag.Diagnostics) {
	reference, digest, err := r.offered(ctx, client, m, config.Reference.ValueString())
	pin := config.pin()
	needed := m.Digest.IsUnknown() && pin.IsNull()
	if err != nil && needed {
		diags.AddAttributeError(path.Root("reference"), "The digest of this image cannot be looked up",
			fmt.Sprintf("Cannot pin %s: %s. Write digest = \"sha256:…\", or have the cluster's catalog record (%s/catalog/%s) name one. Nothing was written.",
				first(reference, "the default image"), screen.Distrust(err.Error()), r.cluster.prefix, m.kind()))
		return
	}
	if m.Reference.IsUnknown() {
		m.Reference = types.StringValue(first(reference, nomadjob.DefaultImages[string(m.kind())]))
	}
	if !pin.IsNull() {
		m.pinned(pin)
		return
	}
	m.CheckError = types.StringNull()
	m.OfferedReference, m.OfferedDigest = types.StringValue(first(reference, m.Reference.ValueString())), types.StringValue(digest)
	if err != nil {
		m.CheckError, m.OfferedDigest = types.StringValue(screen.Distrust(err.Error()).String()), m.Digest
	}
	if needed {
		m.Digest = m.OfferedDigest
	}
	m.DecidedDigest = m.OfferedDigest
	m.UpdateAvailable = types.BoolValue(!m.OfferedDigest.Equal(m.Digest))
}

// Read refreshes the record and what is offered now. A failed look-up is an attribute.
func (r *imageResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m imageModel
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
	imported := m.Digest.IsNull()
	rec, err := r.cluster.records(client).Read(ctx, nomadjob.ImageKind, m.Namespace.ValueString(), m.Name.ValueString())
	written := m.Reference.ValueString()
	switch {
	case errors.Is(err, nomadjob.ErrNoRecord) && imported:
		resp.State.RemoveResource(ctx)
		return
	case errors.Is(err, nomadjob.ErrNoRecord):
		// Not removed: a new create would take the digest of today.
		m.Recorded = types.BoolValue(false)
		keepIndex(ctx, resp.Private, 0, &resp.Diagnostics)
	case err != nil:
		resp.Diagnostics.Append(r.cluster.explain(err, r.cluster.recordOperation(nomadjob.ImageKind, "read", &m.baseModel, "read")))
		return
	default:
		spec := m.load(rec, &resp.Diagnostics)
		if !spec.Written {
			written = ""
		}
		keepIndex(ctx, resp.Private, rec.Index, &resp.Diagnostics)
	}
	if m.Decision.ValueString() != decidedPin {
		r.refreshOffer(ctx, client, &m, written)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// load takes a record over.
func (m *imageModel) load(rec nomadjob.Record, diags *diag.Diagnostics) nomadjob.Image {
	var spec nomadjob.Image
	if err := json.Unmarshal(rec.Spec, &spec); err != nil || !image.ValidDigest(spec.Digest) {
		diags.AddError("This record cannot be read", fmt.Sprintf("The record of the sandbox image %q holds no digest.", rec.Name))
		return spec
	}
	m.ID = types.StringValue(rec.Name + "@" + rec.Namespace)
	m.Description = textOr(spec.Description, m.Description)
	m.Kind, m.Reference, m.Digest = types.StringValue(spec.Kind), types.StringValue(spec.Reference), types.StringValue(spec.Digest)
	m.Source = types.StringValue(first(spec.Source, string(image.Registry)))
	m.OnDefaultChange = types.StringValue(first(spec.OnDefaultChange, keep))
	m.DecidedDigest, m.Decision = types.StringValue(first(spec.Decided, spec.Digest)), types.StringValue(first(spec.Decision, decidedInitial))
	m.Recorded = types.BoolValue(true)
	if m.ForceDestroy.IsNull() {
		m.ForceDestroy = types.BoolValue(false)
	}
	if m.OfferedDigest.IsNull() {
		m.OfferedReference, m.OfferedDigest = m.Reference, m.DecidedDigest
	}
	m.UpdateAvailable = types.BoolValue(!m.OfferedDigest.Equal(m.Digest))
	m.derive()
	return spec
}

func (r *imageResource) refreshOffer(ctx context.Context, client *api.Client, m *imageModel, written string) {
	reference, digest, err := r.offered(ctx, client, m, written)
	m.CheckError = types.StringNull()
	if err != nil {
		m.CheckError = types.StringValue(screen.Distrust(err.Error()).String())
		return
	}
	m.OfferedReference, m.OfferedDigest = types.StringValue(reference), types.StringValue(digest)
	m.UpdateAvailable = types.BoolValue(digest != m.Digest.ValueString())
}

func (r *imageResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m imageModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	index := indexOf(ctx, req.Private, &resp.Diagnostics)
	client, d := r.cluster.client(ctx)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !m.ForceDestroy.ValueBool() {
		uses := func(meta map[string]string) bool {
			return r.cluster.names(meta, nomadjob.ImageKind, m.Name.ValueString()) || meta[nomadjob.MetaImage] == m.Image.ValueString()
		}
		resp.Diagnostics.Append(r.cluster.refuseUsed(ctx, "sandbox image", &m.baseModel, uses)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	if !m.Recorded.ValueBool() {
		return
	}
	err := r.cluster.records(client).Delete(ctx, nomadjob.ImageKind, m.Namespace.ValueString(), m.Name.ValueString(), index)
	resp.Diagnostics.Append(r.cluster.recordFailed(err, nomadjob.ImageKind, "sandbox image", "delete", &m.baseModel)...)
}
