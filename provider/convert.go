// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

const (
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

// reader takes values out of a model. A null or unknown one leaves its target alone, and an
// unknown one is remembered.
type reader struct {
	ctx   context.Context
	known bool
	diags diag.Diagnostics
}

// has says whether there is a value.
func (r *reader) has(v attr.Value) bool {
	if v.IsUnknown() {
		r.known = false
	}
	return !v.IsNull() && !v.IsUnknown()
}

func (r *reader) text(v types.String, into *string) {
	if r.has(v) {
		*into = v.ValueString()
	}
}

func (r *reader) number(v types.Int64, into *int64) {
	if r.has(v) {
		*into = v.ValueInt64()
	}
}

func (r *reader) flag(v types.Bool, into *bool) {
	if r.has(v) {
		*into = v.ValueBool()
	}
}

// table takes a map of texts; an element that is unknown is left out and remembered.
func (r *reader) table(v types.Map, into *map[string]string) {
	if !r.has(v) {
		return
	}
	out := map[string]string{}
	for key, one := range v.Elements() {
		if s, ok := one.(types.String); ok && r.has(s) {
			out[key] = s.ValueString()
		}
	}
	*into = out
}

// words takes a list or set of texts.
func (r *reader) words(v interface {
	attr.Value
	Elements() []attr.Value
}, into *[]string) {
	if !r.has(v) {
		return
	}
	var out []string
	for _, one := range v.Elements() {
		if s, ok := one.(types.String); ok && r.has(s) {
			out = append(out, s.ValueString())
		}
	}
	*into = out
}

// textOr is a text, or null where there is none; an empty text that was written stays.
func textOr(text string, prior types.String) types.String {
	if text == "" && (prior.IsNull() || prior.IsUnknown() || prior.ValueString() != "") {
		return types.StringNull()
	}
	return types.StringValue(text)
}

// durationOr keeps the spelling of a duration that is the same.
func durationOr(text string, prior types.String) types.String {
	if text != "" && !prior.IsNull() && nomadjob.Duration(prior.ValueString()) == nomadjob.Duration(text) {
		return prior
	}
	return textOr(text, prior)
}

// tableOr is a map, or null where it is empty; an empty one that was written stays.
func tableOr(ctx context.Context, table map[string]string, prior types.Map, diags *diag.Diagnostics) types.Map {
	if len(table) == 0 && (prior.IsNull() || len(prior.Elements()) > 0) {
		return types.MapNull(types.StringType)
	}
	out, d := types.MapValueFrom(ctx, types.StringType, table)
	diags.Append(d...)
	return out
}

func setOf(ctx context.Context, words []string, diags *diag.Diagnostics) types.Set {
	out, d := types.SetValueFrom(ctx, types.StringType, words)
	diags.Append(d...)
	return out
}

func listOf(ctx context.Context, words []string, diags *diag.Diagnostics) types.List {
	out, d := types.ListValueFrom(ctx, types.StringType, words)
	diags.Append(d...)
	return out
}

func sorted(words []string) []string {
	out := slices.Clone(words)
	slices.Sort(out)
	return out
}
