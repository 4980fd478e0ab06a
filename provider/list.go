// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// List resources are for `terraform query` (Terraform 1.14 and later), which also writes the
// import blocks for what is found.

var (
	_ list.ListResourceWithConfigure = (*recordResource[profileModel, *profileModel])(nil)
	_ list.ListResourceWithConfigure = (*imageResource)(nil)
	_ list.ListResourceWithConfigure = (*screenResource)(nil)
)

func newProfileList() list.ListResource   { return newProfile().(list.ListResource) }
func newPlacementList() list.ListResource { return newPlacement().(list.ListResource) }
func newImageList() list.ListResource     { return newImage().(list.ListResource) }
func newScreenList() list.ListResource    { return newScreen().(list.ListResource) }

func listSchema(about string, more map[string]schema.Attribute) schema.Schema {
	all := map[string]schema.Attribute{"namespace": schema.StringAttribute{Optional: true, Validators: []validator.String{namespaceValidator{}},
		MarkdownDescription: "Nomad namespace. Default: the provider's."}}
	for name, a := range more {
		all[name] = a
	}
	return schema.Schema{MarkdownDescription: about, Attributes: all}
}

// listing is one request for a list.
type listing struct {
	cluster   *cluster
	client    *api.Client
	namespace string
	req       list.ListRequest
	stream    *list.ListResultsStream
	diags     diag.Diagnostics
}

// listing connects and reads the namespace that is asked for.
func (c *cluster) listing(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) *listing {
	l := &listing{cluster: c, req: req, stream: stream}
	namespace := l.text(ctx, "namespace")
	client, diags := c.client(ctx)
	l.diags.Append(diags...)
	l.client, l.namespace = client, first(namespace.ValueString(), c.defaultNamespace())
	return l
}

// text is a filter of the configuration; null where it is not written.
func (l *listing) text(ctx context.Context, name string) types.String {
	var v types.String
	if !l.req.Config.Raw.IsNull() {
		l.diags.Append(l.req.Config.GetAttribute(ctx, path.Root(name), &v)...)
	}
	return v
}

// refused says whether there is nothing to list with, and tells why.
func (l *listing) refused() bool {
	if l.diags.HasError() {
		l.stream.Results = list.ListResultsStreamDiagnostics(l.diags)
	}
	return l.diags.HasError()
}

// send gives the results of each name until the CLI has as many as it wants. look fills a
// result in; false: it is none.
func (l *listing) send(names []string, look func(name string, result *list.ListResult) bool) {
	l.stream.Results = func(push func(list.ListResult) bool) {
		sent := int64(0)
		for _, name := range names {
			if l.req.Limit > 0 && sent == l.req.Limit {
				return
			}
			result := l.req.NewListResult(context.Background())
			if !look(name, &result) {
				continue
			}
			if sent++; !push(result) {
				return
			}
		}
	}
}

// start gives a result its name and identity.
func (l *listing) start(ctx context.Context, b *baseModel, name string, result *list.ListResult) {
	b.Name, b.Namespace = types.StringValue(name), types.StringValue(l.namespace)
	b.ID = types.StringValue(name + "@" + l.namespace)
	result.DisplayName = b.ID.ValueString()
	setIdentity(ctx, result.Identity, b.identity(l.cluster), &result.Diagnostics)
}

// records sends the records of a kind. One request finds them; each is read only where its
// content is wanted or chosen by. take says whether a record is one of those.
func (l *listing) records(ctx context.Context, kind nomadjob.Kind, chosen bool, take func(rec *nomadjob.Record, result *list.ListResult) bool) {
	records := l.cluster.records(l.client)
	names, err := records.Names(ctx, kind, l.namespace)
	if err != nil {
		l.diags.Append(l.cluster.explain(err, l.cluster.recordOperation(kind, "list", &baseModel{Namespace: types.StringValue(l.namespace)}, "list")))
		l.refused()
		return
	}
	slices.Sort(names)
	l.send(names, func(name string, result *list.ListResult) bool {
		if !l.req.IncludeResource && !chosen {
			return take(&nomadjob.Record{Kind: kind, Name: name, Namespace: l.namespace}, result)
		}
		rec, err := records.Read(ctx, kind, l.namespace, name)
		if errors.Is(err, nomadjob.ErrNoRecord) {
			return false // gone since
		}
		if err != nil {
			result.Diagnostics.Append(l.cluster.explain(err, l.cluster.recordOperation(kind, "read", &baseModel{Namespace: types.StringValue(l.namespace)}, "read")))
			return true
		}
		return take(&rec, result)
	})
}

// labelled is a record that can be found by words.
type labelled interface{ labels() types.Map }

func (m *profileModel) labels() types.Map { return m.Labels }

func (r *recordResource[M, P]) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	more := map[string]schema.Attribute{}
	if _, ok := any(P(new(M))).(labelled); ok {
		more["labels"] = schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Only those with all of these labels."}
	}
	resp.Schema = listSchema(fmt.Sprintf("Finds every %s of a namespace.", r.word), more)
}

func (r *recordResource[M, P]) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	l := r.cluster.listing(ctx, req, stream)
	wanted := types.MapNull(types.StringType)
	if _, ok := any(P(new(M))).(labelled); ok && !req.Config.Raw.IsNull() {
		l.diags.Append(req.Config.GetAttribute(ctx, path.Root("labels"), &wanted)...)
	}
	if l.refused() {
		return
	}
	l.records(ctx, r.kind, !wanted.IsNull(), func(rec *nomadjob.Record, result *list.ListResult) bool {
		m := P(new(M))
		l.start(ctx, m.base(), rec.Name, result)
		if rec.Spec == nil {
			return true
		}
		result.Diagnostics.Append(m.load(ctx, rec.Spec)...)
		if has, ok := any(m).(labelled); ok && !hasAll(has.labels(), wanted) {
			return false
		}
		m.record().Ref, m.record().ForceDestroy = types.StringValue(rec.Ref()), types.BoolValue(false)
		if req.IncludeResource {
			result.Diagnostics.Append(result.Resource.Set(ctx, m)...)
		}
		return true
	})
}

// hasAll says whether a map holds every element of another.
func hasAll(all, wanted types.Map) bool {
	for key, value := range wanted.Elements() {
		if found, ok := all.Elements()[key]; !ok || !found.Equal(value) {
			return false
		}
	}
	return true
}

func (r *imageResource) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = listSchema("Finds every sandbox image of a namespace.", nil)
}

func (r *imageResource) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	l := r.cluster.listing(ctx, req, stream)
	if l.refused() {
		return
	}
	l.records(ctx, nomadjob.ImageKind, false, func(rec *nomadjob.Record, result *list.ListResult) bool {
		var m imageModel
		l.start(ctx, &m.baseModel, rec.Name, result)
		if rec.Spec == nil {
			return true
		}
		m.load(*rec, &result.Diagnostics)
		result.Diagnostics.Append(result.Resource.Set(ctx, m)...)
		return true
	})
}
