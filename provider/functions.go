// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/image"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// imageRef takes an image reference apart, offline.
type imageRef struct{}

func newImageRef() function.Function { return imageRef{} }

var imageRefType = map[string]attr.Type{
	"registry": types.StringType, "repository": types.StringType, "tag": types.StringType, "digest": types.StringType, "pinned": types.BoolType,
}

func (imageRef) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "image_ref"
}

func (imageRef) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary:             "Take an image reference apart",
		MarkdownDescription: "Takes an image reference apart, offline. A registry's port is never taken for a tag. Parts that are not there are null; `pinned` says whether there is a digest.",
		Parameters:          []function.Parameter{function.StringParameter{Name: "reference", MarkdownDescription: "For example `registry.example:5000/team/desk:1.4@sha256:…`."}},
		Return:              function.ObjectReturn{AttributeTypes: imageRefType},
	}
}

func (imageRef) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	kind := image.Docker
	if _, err := image.Parse(kind, text); err != nil {
		kind = image.Apptainer // which knows transports and files as well
	}
	ref, err := image.Parse(kind, text)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, fmt.Sprintf("The reference %v; it is %q.", err, screen.Distrust(text)))
		return
	}
	object, diags := types.ObjectValue(imageRefType, map[string]attr.Value{
		"registry": optional(ref.Registry), "repository": optional(first(ref.Repository, ref.File)), "tag": optional(ref.Tag), "digest": optional(ref.Digest),
		"pinned": types.BoolValue(ref.Digest != ""),
	})
	resp.Error = function.ConcatFuncErrors(function.FuncErrorFromDiags(ctx, diags), resp.Result.Set(ctx, object))
}

// recordRef computes the ref that a record with these values has, offline.
type recordRef struct{}

func newRecordRef() function.Function { return recordRef{} }

func (recordRef) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "record_ref"
}

func (recordRef) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary:             "The ref of a record",
		MarkdownDescription: "Computes the `ref` of a profile or a placement from its values, offline, for modules that only have those. What is left out has its default.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "kind", MarkdownDescription: "`profile` or `placement`."},
			function.StringParameter{Name: "name", MarkdownDescription: "Name of the record."},
			function.DynamicParameter{Name: "record", MarkdownDescription: "An object with the record's attributes."},
		},
		Return: function.StringReturn{},
	}
}

func (recordRef) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var kind, name string
	var record types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &kind, &name, &record); resp.Error != nil {
		return
	}
	switch {
	case kind != string(nomadjob.ProfileKind) && kind != string(nomadjob.PlacementKind):
		resp.Error = function.NewArgumentFuncError(0, fmt.Sprintf("The kind must be profile or placement; it is %q.", screen.Distrust(kind)))
		return
	case !screen.Profile(name).Valid():
		resp.Error = function.NewArgumentFuncError(1, fmt.Sprintf("The name must be 1 to 63 lower-case letters, digits and hyphens; it is %q.", screen.Distrust(name)))
		return
	}
	tree, err := goValue(record.UnderlyingValue())
	if _, object := tree.(map[string]any); err != nil || !object {
		resp.Error = function.NewArgumentFuncError(2, "The record must be an object with the record's attributes.")
		return
	}
	text, err := nomadjob.Canonical(tree)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(2, err.Error())
		return
	}
	rec := nomadjob.Record{Kind: nomadjob.Kind(kind), Name: name, Spec: text}
	resp.Error = resp.Result.Set(ctx, rec.Ref())
}

// goValue is a value of Terraform's as JSON has it.
func goValue(v attr.Value) (any, error) {
	if v == nil || v.IsNull() {
		return nil, nil
	}
	switch v := v.(type) {
	case types.String:
		return v.ValueString(), nil
	case types.Bool:
		return v.ValueBool(), nil
	case types.Number:
		return json.Number(v.ValueBigFloat().Text('f', -1)), nil
	case types.Int64:
		return v.ValueInt64(), nil
	case types.Dynamic:
		return goValue(v.UnderlyingValue())
	case types.Object:
		return goMap(v.Attributes())
	case types.Map:
		return goMap(v.Elements())
	case interface{ Elements() []attr.Value }:
		out := []any{}
		for _, one := range v.Elements() {
			e, err := goValue(one)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

func goMap(all map[string]attr.Value) (any, error) {
	out := map[string]any{}
	for key, one := range all {
		e, err := goValue(one)
		if err != nil {
			return nil, err
		}
		out[key] = e
	}
	return out, nil
}
