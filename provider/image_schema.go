// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/image"
)

// Words of on_default_change and decision.
const (
	keep             = "keep"
	moveOn           = "switch"
	refuse           = "refuse"
	decidedInitial   = "initial"
	decidedPin       = "pin"
	decidedReference = "reference"
)

type imageModel struct {
	baseModel
	recordPart
	Kind             types.String `tfsdk:"kind"`
	Reference        types.String `tfsdk:"reference"`
	Digest           types.String `tfsdk:"digest"`
	Source           types.String `tfsdk:"source"`
	OnDefaultChange  types.String `tfsdk:"on_default_change"`
	Image            types.String `tfsdk:"image"`
	OfferedReference types.String `tfsdk:"offered_reference"`
	OfferedDigest    types.String `tfsdk:"offered_digest"`
	DecidedDigest    types.String `tfsdk:"decided_digest"`
	Decision         types.String `tfsdk:"decision"`
	UpdateAvailable  types.Bool   `tfsdk:"update_available"`
	CheckError       types.String `tfsdk:"check_error"`
	Recorded         types.Bool   `tfsdk:"recorded"`
}

func imageSchema() schema.Schema {
	computed := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	all := recordAttributes("sandbox image")
	for name, a := range map[string]schema.Attribute{
		"kind": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(string(image.Docker)),
			Validators:          []validator.String{stringvalidator.OneOf(string(image.Docker), string(image.Apptainer))},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			MarkdownDescription: "Which sandbox runs it: `docker` (default) or `apptainer`. Another one is a replacement."},
		"reference": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			MarkdownDescription: "Name of the image. With `@sha256:…` in it, that is the digest. Default: the cluster's catalog, else the default of this version. Another one asks for a new decision."},
		"digest": schema.StringAttribute{Optional: true, Computed: true, Validators: []validator.String{digestValidator{}},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			MarkdownDescription: "The pin, `sha256:…`: the digest of the reference as pulled, the index's where there is one. Written, it is the answer to every question. Not written, it is looked up once, at the create, and stays until somebody decides."},
		"source": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(string(image.Registry)),
			Validators: []validator.String{stringvalidator.OneOf(string(image.Registry), string(image.Engine))},
			MarkdownDescription: "Where digests are looked up: `registry` (default; one HEAD request with the credentials of the docker configuration), " +
				"or `engine`, the docker engine of the machine that runs Terraform, for clusters without a registry. A path of an image file (apptainer) is always read."},
		"on_default_change": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(keep),
			Validators:          []validator.String{stringvalidator.OneOf(keep, moveOn, refuse)},
			MarkdownDescription: "What happens when the reference offers another digest: `keep` (default) records that it was seen and stays, `switch` moves the pin, `refuse` stops the plan until somebody decides."},
		"image":             computed("What screens name: `NAME@DIGEST`."),
		"offered_reference": computed("The reference that was looked up last."),
		"offered_digest":    computed("The digest that it has now."),
		"decided_digest":    computed("The offered digest about which was decided last."),
		"decision":          computed("The last answer: `initial`, `keep`, `switch`, `pin` or `reference`."),
		"update_available":  schema.BoolAttribute{Computed: true, MarkdownDescription: "Another digest than the pinned one is offered. For `check` blocks."},
		"check_error":       computed("Why the last look-up failed; null where it did not. A failed look-up never fails a plan, and the pin stays."),
		"recorded":          schema.BoolAttribute{Computed: true, MarkdownDescription: "The cluster has the record. `false` when somebody deleted it; it is then written again with the same digest."},
	} {
		all[name] = a
	}
	return schema.Schema{
		MarkdownDescription: "A sandbox image, pinned by digest. Nothing moves by itself: when the reference offers another digest, a plan shows the decision as a line of its own.",
		Attributes:          all,
	}
}

type digestValidator struct{ describe }

func (digestValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text, ok := value(req); ok && !image.ValidDigest(text) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid digest", fmt.Sprintf("`digest` must be sha256: and 64 hex digits; it is %q.", text))
	}
}
