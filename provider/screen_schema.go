// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// screenModel is one screen: what was declared, and what became of it.
type screenModel struct {
	baseModel
	declared
	observed
	Timeouts timeouts.Value `tfsdk:"timeouts"`
}

// declared is what a user writes.
type declared struct {
	JobID           types.String `tfsdk:"job_id"`
	Profile         types.String `tfsdk:"profile"`
	Placement       types.String `tfsdk:"placement"`
	Image           types.String `tfsdk:"image"`
	DesiredState    types.String `tfsdk:"desired_state"`
	RunPolicy       types.String `tfsdk:"run_policy"`
	RestartTriggers types.Map    `tfsdk:"restart_triggers"`
	WaitFor         types.String `tfsdk:"wait_for"`
	PurgeOnDestroy  types.Bool   `tfsdk:"purge_on_destroy"`
	Meta            types.Map    `tfsdk:"meta"`
	Force           types.Bool   `tfsdk:"force"`
}

// observed is what the cluster says.
type observed struct {
	Status       types.String `tfsdk:"status"`
	StopReason   types.String `tfsdk:"stop_reason"`
	Isolation    types.String `tfsdk:"isolation"`
	ImageDigest  types.String `tfsdk:"image_digest"`
	AllocID      types.String `tfsdk:"alloc_id"`
	NodeID       types.String `tfsdk:"node_id"`
	NodeName     types.String `tfsdk:"node_name"`
	ProfileRef   types.String `tfsdk:"profile_ref"`
	PlacementRef types.String `tfsdk:"placement_ref"`
	JobVersion   types.Int64  `tfsdk:"job_version"`
	Drift        types.List   `tfsdk:"drift"`
	Lease        types.Object `tfsdk:"lease"`
	ViewerURL    types.String `tfsdk:"viewer_url"`
}

// Words of desired_state and run_policy.
const (
	stateRunning = "running"
	stateStopped = "stopped"
	policyDemand = "on_demand"
	policyAlways = "always"
)

var leaseType = map[string]attr.Type{"holder": types.StringType, "since": types.StringType, "epoch": types.Int64Type}

// Timeouts where the configuration names none.
const (
	createTimeout = 5 * minute
	deleteTimeout = 2 * minute
)

func screenSchema(ctx context.Context) schema.Schema {
	all := baseAttributes("screen")
	for name, a := range declaredAttributes() {
		all[name] = a
	}
	for name, a := range observedAttributes() {
		all[name] = a
	}
	all["timeouts"] = timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Delete: true,
		CreateDescription: "How long a create may wait for the desktop. Default: `5m`.",
		UpdateDescription: "How long an update may wait for the desktop. Default: `5m`.",
		DeleteDescription: "How long a destroy may wait for its end. Default: `2m`.",
	})
	return schema.Schema{
		MarkdownDescription: "One desktop: a Nomad job with one task of the driver `botscreen`. Create and update wait until the driver says that the desktop is ready.\n\n" +
			"Another `profile`, `placement`, `image`, `meta` or `restart_triggers` starts the desktop anew: windows are lost, the home directory and its logins stay. " +
			"While a person holds the screen such a change, and a destroy, is refused unless `force` is set.",
		Attributes: all,
	}
}

func declaredAttributes() map[string]schema.Attribute {
	word := func(value, description string, words ...string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(value),
			Validators: []validator.String{stringvalidator.OneOf(words...)}, MarkdownDescription: description}
	}
	flag := func(value bool, description string) schema.BoolAttribute {
		return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(value), MarkdownDescription: description}
	}
	return map[string]schema.Attribute{
		"job_id": schema.StringAttribute{Optional: true, Computed: true, Validators: []validator.String{jobIDValidator{}},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			MarkdownDescription: "ID of the Nomad job. Default: `botscreen-NAME`. Another one is a replacement."},
		"profile": schema.StringAttribute{Required: true, Validators: []validator.String{refValidator{}},
			MarkdownDescription: "The profile: its `ref`, or a name. A profile is one bot and has one screen at a time."},
		"placement": schema.StringAttribute{Optional: true, Validators: []validator.String{refValidator{}},
			MarkdownDescription: "The placement: its `ref`, or a name. Default: any sandbox on any node of the pool `default`, never the host."},
		"image": schema.StringAttribute{Optional: true, Validators: []validator.String{pinnedValidator{}},
			MarkdownDescription: "What a sandbox runs: the `image` of a `botscreen_sandbox_image`, `REPOSITORY@sha256:…`, or the name of a sandbox image. A tag alone is refused. Default: the node's `default_image`."},
		"desired_state": schema.StringAttribute{Optional: true, Computed: true, Validators: []validator.String{stringvalidator.OneOf(stateRunning, stateStopped)},
			MarkdownDescription: "`running` or `stopped`. Where it is not written, a new screen runs, and one that somebody stopped stays as it is."},
		"run_policy": word(policyDemand, "`on_demand` (default): a desktop that ended by itself is no change. `always`: the next apply starts it again.", policyDemand, policyAlways),
		"restart_triggers": schema.MapAttribute{Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Any words: another value starts the desktop anew."},
		"wait_for": word(string(nomadjob.Running), "How far create and update wait: `running` (default: the driver says that the desktop is ready), `placed` or `registered`.",
			string(nomadjob.Running), string(nomadjob.Placed), string(nomadjob.Registered)),
		"purge_on_destroy": flag(true, "Remove the job from Nomad at destroy, rather than leave it there stopped. Default: `true`."),
		"meta": schema.MapAttribute{Optional: true, ElementType: types.StringType, Validators: []validator.Map{mapvalidator.KeysAre(metaKeyValidator{})},
			MarkdownDescription: "Meta of the job. Keys must not start with `botscreen_`."},
		"force": flag(false, "Change or destroy the screen also while a person holds it. To destroy a held screen, apply `force = true` first. Default: `false`."),
	}
}

func observedAttributes() map[string]schema.Attribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	return map[string]schema.Attribute{
		"status":        text("`pending`, `running`, `asleep`, `idle_stopped`, `stopped`, `failed` or `lost`."),
		"stop_reason":   text("Why the desktop ended or sleeps, in the driver's words."),
		"isolation":     text("Where it runs: `host`, `docker` or `apptainer`."),
		"image_digest":  text("Digest of the image that it runs."),
		"alloc_id":      text("ID of its newest allocation."),
		"node_id":       text("ID of its node."),
		"node_name":     text("Name of its node."),
		"profile_ref":   text("Version of the profile that the job was made from."),
		"placement_ref": text("Version of the placement that the job was made from."),
		"viewer_url":    text("Where people with a ticket see the screen (`viewer` of the profile); it holds no secret. Null where it has no viewer listener, and while it does not run."),
		"job_version":   schema.Int64Attribute{Computed: true, MarkdownDescription: "Version of the job."},
		"drift": schema.ListAttribute{Computed: true, ElementType: types.StringType,
			MarkdownDescription: "Where the job in Nomad is not as it was made, each as `path: found → wanted`. An apply puts it right."},
		"lease": schema.SingleNestedAttribute{Computed: true, MarkdownDescription: "Who may send input.",
			Attributes: map[string]schema.Attribute{
				"holder": text("`agent` or `human`."),
				"since":  text("Since when at least, RFC 3339: as far back as Nomad keeps the events."),
				"epoch":  schema.Int64Attribute{Computed: true, MarkdownDescription: "It grows at every change of hands."},
			}},
	}
}

type refValidator struct{ describe }

func (refValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, ok := value(req)
	if !ok {
		return
	}
	if _, _, good := nomadjob.ParseRef(text); !good {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(),
			fmt.Sprintf("`%s` must be the ref of a %s (for example botscreen_%s.this.ref) or a name; it is %q.", req.Path, req.Path, req.Path, text))
	}
}

var pinnedForm = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

type pinnedValidator struct{ describe }

func (pinnedValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, ok := value(req)
	if !ok || pinnedForm.MatchString(text) {
		return
	}
	if _, hash, good := nomadjob.ParseRef(text); good && hash == "" && !strings.Contains(text, ":") {
		return // the name of a sandbox image
	}
	resp.Diagnostics.AddAttributeError(req.Path, "This image is not pinned",
		fmt.Sprintf("`image` must end in @sha256:… or be the name of a sandbox image; it is %q. A tag may move under a running fleet: "+
			"use a botscreen_sandbox_image, which decides about that in a plan, or write the digest.", text))
}

var jobIDForm = regexp.MustCompile(`^[^\s\x00]{1,128}$`)

type jobIDValidator struct{ describe }

func (jobIDValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text, ok := value(req); ok && !jobIDForm.MatchString(text) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid job_id", fmt.Sprintf("`job_id` must be 1 to 128 bytes without spaces; it is %q.", text))
	}
}

type metaKeyValidator struct{ describe }

func (metaKeyValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text, ok := value(req); ok && strings.HasPrefix(text, nomadjob.MetaPrefix) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid meta", fmt.Sprintf("Keys that start with %s are botscreen's own; this one is %q.", nomadjob.MetaPrefix, text))
	}
}
