// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// blankScreen is a screen of which nothing is known: what has a type of its own is null.
func blankScreen() screenModel {
	m := screenModel{Timeouts: timeouts.Value{Object: types.ObjectNull(map[string]attr.Type{
		"create": types.StringType, "update": types.StringType, "delete": types.StringType})}}
	m.RestartTriggers, m.Meta = types.MapNull(types.StringType), types.MapNull(types.StringType)
	return m
}

// statusWords are the statuses as a validator takes them.
func statusWords() []string {
	out := make([]string, len(nomadjob.Statuses))
	for i, s := range nomadjob.Statuses {
		out[i] = string(s)
	}
	return out
}

func (r *screenResource) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = listSchema("Finds every screen of a namespace that was declared.", map[string]schema.Attribute{
		"profile": schema.StringAttribute{Optional: true, MarkdownDescription: "Only screens of this profile."},
		"status":  schema.StringAttribute{Optional: true, Validators: []validator.String{stringvalidator.OneOf(statusWords()...)}, MarkdownDescription: "Only screens with this status."},
		"labels":  schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: labelsOfScreens},
	})
}

// List makes two requests, and two more for each screen of which the resource is wanted.
func (r *screenResource) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	l := r.cluster.listing(ctx, req, stream)
	profile, status := l.text(ctx, "profile"), l.text(ctx, "status")
	labels := types.MapNull(types.StringType)
	if !req.Config.Raw.IsNull() {
		l.diags.Append(req.Config.GetAttribute(ctx, path.Root("labels"), &labels)...)
	}
	if l.refused() {
		return
	}
	all, diags := r.cluster.screens(ctx, l.client, l.namespace, chosen{profile, status, labels})
	if l.diags.Append(diags...); l.refused() {
		return
	}
	jobs := map[string]string{}
	var names []string
	for _, one := range all {
		jobs[one.Name] = one.JobID
		names = append(names, one.Name)
	}
	l.send(names, func(name string, result *list.ListResult) bool {
		m := blankScreen()
		l.start(ctx, &m.baseModel, name, result)
		if !req.IncludeResource {
			return true
		}
		m.JobID = types.StringValue(jobs[name])
		found, err := nomadjob.Lookup(ctx, l.client, l.namespace, jobs[name])
		switch {
		case connection.Classify(err) == connection.NotFound || err == nil && !nomadjob.IsScreen(found.Job):
			return false // gone since
		case err != nil:
			result.Diagnostics.Append(r.cluster.explain(err, readJob(&m)))
			return true
		}
		m.adopt(ctx, found.Job, &result.Diagnostics)
		m.observe(ctx, found, nil, &result.Diagnostics)
		result.Diagnostics.Append(result.Resource.Set(ctx, m)...)
		return true
	})
}
