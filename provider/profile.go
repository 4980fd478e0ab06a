// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

type profileModel struct {
	baseModel
	recordPart
	profileDoors
	Geometry        types.String `tfsdk:"geometry"`
	Depth           types.Int64  `tfsdk:"depth"`
	DPI             types.Int64  `tfsdk:"dpi"`
	MinFreeMemoryMB types.Int64  `tfsdk:"min_free_memory_mb"`
	StartTimeout    types.String `tfsdk:"start_timeout"`
	KeyboardLayout  types.String `tfsdk:"keyboard_layout"`
	Look            types.String `tfsdk:"look"`
	GLX             types.Bool   `tfsdk:"glx"`
	IdleStop        types.String `tfsdk:"idle_stop"`
	IdleAction      types.String `tfsdk:"idle_action"`
	Watch           types.String `tfsdk:"watch"`
	Thumbnails      types.String `tfsdk:"thumbnails"`
	Clipboard       types.String `tfsdk:"clipboard"`
	Takeover        types.String `tfsdk:"takeover"`
	AwayLimit       types.String `tfsdk:"away_limit"`
	Consent         types.Bool   `tfsdk:"consent"`
	MaxGeometry     types.String `tfsdk:"max_geometry"`
	CPU             types.Int64  `tfsdk:"cpu"`
	Memory          types.Int64  `tfsdk:"memory"`
	MemoryMax       types.Int64  `tfsdk:"memory_max"`
	Env             types.Map    `tfsdk:"env"`
	SecretEnv       types.Map    `tfsdk:"secret_env"`
	Labels          types.Map    `tfsdk:"labels"`
}

func newProfile() resource.Resource {
	return &recordResource[profileModel, *profileModel]{
		kind: nomadjob.ProfileKind, word: "profile", suffix: "profile", schema: profileSchema,
	}
}

func profileSchema() schema.Schema {
	d := nomadjob.DefaultProfile()
	text := func(value, description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(value), MarkdownDescription: description}
	}
	number := func(value int64, description string) schema.Int64Attribute {
		return schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(value), MarkdownDescription: description}
	}
	all := recordAttributes("profile")
	for name, a := range map[string]schema.Attribute{
		"geometry":           text(d.Geometry, "Size of the desktop in pixels, `WIDTHxHEIGHT`, from 320x240 to 7680x4320. Default: `1440x900`."),
		"depth":              number(d.Depth, "Colour depth in bits: 16 or 24 (default)."),
		"dpi":                number(d.DPI, "Dots per inch, 48 to 480. Default: 96."),
		"min_free_memory_mb": number(d.MinFreeMemoryMB, "Memory in MiB that must be available on the node before the desktop starts; 0 is no floor. Default: 1536."),
		"start_timeout": schema.StringAttribute{Optional: true, PlanModifiers: []planmodifier.String{sameDuration{}},
			Validators:          []validator.String{durationValidator{least: second, most: 10 * minute}},
			MarkdownDescription: "How long a start may take, `1s` to `10m`. Default: the driver's, `15s` on the host and `30s` in a sandbox."},
		"keyboard_layout": text(d.KeyboardLayout, "Up to four XKB layouts such as `us` or `de(nodeadkeys),fr`. Default: `us`."),
		"look":            text(d.Look, "How much Xfce shows: `lean` (default, starts faster) or `full`."),
		"glx": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "OpenGL in the X server. Starting costs more. Default: `false`."},
		"idle_stop": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("30m"), PlanModifiers: []planmodifier.String{sameDuration{}},
			Validators:          []validator.String{durationValidator{most: 720 * hour}},
			MarkdownDescription: "After how long without use the desktop rests. `0s` is never. Default: `30m`."},
		"idle_action": text(d.IdleAction, "How it rests: `sleep` (default: its programs end, the next use starts it again), `freeze` (they stand still, windows and all, until the next use) or `exit` (the task ends; the job is then a batch job, and changing to it or from it makes the job anew)."),
		"watch":       text(d.Watch, "Who sees the screen while a person controls it: `all` (default), `holder`, or `blank`."),
		"thumbnails":  text(d.Thumbnails, "Small pictures of the screen: `watch` (default: as `watch` allows) or `off`."),
		"clipboard":   text(d.Clipboard, "Where the clipboard passes: `off`, `in` (default: to the desktop) or `both`."),
		"takeover":    text(d.Takeover, "What a takeover does to the agent's programs: `keep` (default) or `clean`."),
		"away_limit": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(d.AwayLimit), PlanModifiers: []planmodifier.String{sameDuration{}},
			Validators:          []validator.String{durationValidator{most: 168 * hour}},
			MarkdownDescription: "How long a person who vanished keeps the screen. Default: `0s`, until somebody acts."},
		"consent": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "Ask the present holder before another person gets the screen. Default: `false`."},
		"max_geometry": schema.StringAttribute{Optional: true,
			MarkdownDescription: "The largest size to which a person may change the desktop. Default: `3840x2160`, or `geometry` where that is larger."},
		"cpu":        number(d.CPU, "CPU to reserve, in MHz. Default: 1000."),
		"memory":     number(d.Memory, "Memory to reserve, in MiB. Default: 2048."),
		"memory_max": schema.Int64Attribute{Optional: true, MarkdownDescription: "Memory that the desktop may use where the node has it, in MiB; at least `memory`, or -1 for no limit. Needs memory oversubscription in Nomad."},
		"env":        schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Environment of the desktop. Plans and state show it: secrets belong into `secret_env`."},
		"secret_env": schema.MapAttribute{Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Environment from Nomad variables: `NAME = \"PATH#KEY\"`. The task reads them with its own identity when it starts; Terraform never does."},
		"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Words to find profiles by. They change nothing that runs."},
	} {
		all[name] = a
	}
	maps.Copy(all, doorAttributes())
	return schema.Schema{
		MarkdownDescription: "What one bot's screen is like. A profile is one bot: it owns one screen at a time, its home directory and its logins. " +
			"For a fleet use `for_each` over profiles and screens.\n\nThe profile is a record (a Nomad variable); it starts nothing by itself.",
		Attributes: all,
	}
}

func (m *profileModel) base() *baseModel    { return &m.baseModel }
func (m *profileModel) record() *recordPart { return &m.recordPart }

func (m *profileModel) spec(ctx context.Context) (validated, bool, diag.Diagnostics) {
	p := nomadjob.DefaultProfile()
	r := reader{ctx: ctx, known: true}
	r.text(m.Description, &p.Description)
	r.text(m.Geometry, &p.Geometry)
	r.number(m.Depth, &p.Depth)
	r.number(m.DPI, &p.DPI)
	r.number(m.MinFreeMemoryMB, &p.MinFreeMemoryMB)
	r.text(m.StartTimeout, &p.StartTimeout)
	if p.StartTimeout != "" {
		p.StartTimeout = nomadjob.Duration(p.StartTimeout)
	}
	r.text(m.KeyboardLayout, &p.KeyboardLayout)
	r.text(m.Look, &p.Look)
	r.flag(m.GLX, &p.GLX)
	r.text(m.IdleStop, &p.IdleStop)
	p.IdleStop = nomadjob.Duration(p.IdleStop)
	r.text(m.IdleAction, &p.IdleAction)
	r.text(m.Watch, &p.Watch)
	r.text(m.Thumbnails, &p.Thumbnails)
	r.text(m.Clipboard, &p.Clipboard)
	r.text(m.Takeover, &p.Takeover)
	r.text(m.AwayLimit, &p.AwayLimit)
	p.AwayLimit = nomadjob.Duration(p.AwayLimit)
	r.flag(m.Consent, &p.Consent)
	r.text(m.MaxGeometry, &p.MaxGeometry)
	if m.Geometry.IsUnknown() {
		p.MaxGeometry = "" // nothing to compare it with yet
	}
	m.profileDoors.spec(&r, &p)
	r.number(m.CPU, &p.CPU)
	r.number(m.Memory, &p.Memory)
	r.number(m.MemoryMax, &p.MemoryMax)
	if m.Memory.IsUnknown() {
		p.MemoryMax = 0 // nothing to compare it with yet
	}
	r.table(m.Env, &p.Env)
	r.table(m.SecretEnv, &p.SecretEnv)
	r.table(m.Labels, &p.Labels)
	return p, r.known, r.diags
}

func (m *profileModel) load(ctx context.Context, spec json.RawMessage) diag.Diagnostics {
	p := nomadjob.DefaultProfile()
	if err := json.Unmarshal(spec, &p); err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("This record cannot be read", "The profile's record: "+err.Error())}
	}
	m.Description = textOr(p.Description, m.Description)
	m.Geometry, m.Depth, m.DPI = types.StringValue(p.Geometry), types.Int64Value(p.Depth), types.Int64Value(p.DPI)
	m.MinFreeMemoryMB = types.Int64Value(p.MinFreeMemoryMB)
	m.StartTimeout = durationOr(p.StartTimeout, m.StartTimeout)
	m.KeyboardLayout, m.Look, m.GLX = types.StringValue(p.KeyboardLayout), types.StringValue(p.Look), types.BoolValue(p.GLX)
	m.IdleStop, m.IdleAction = durationOr(p.IdleStop, m.IdleStop), types.StringValue(p.IdleAction)
	m.Watch, m.Thumbnails, m.Clipboard = types.StringValue(p.Watch), types.StringValue(p.Thumbnails), types.StringValue(p.Clipboard)
	m.Takeover, m.Consent = types.StringValue(p.Takeover), types.BoolValue(p.Consent)
	m.AwayLimit, m.MaxGeometry = durationOr(p.AwayLimit, m.AwayLimit), textOr(p.MaxGeometry, m.MaxGeometry)
	m.CPU, m.Memory = types.Int64Value(p.CPU), types.Int64Value(p.Memory)
	m.MemoryMax = types.Int64Null()
	if p.MemoryMax != 0 {
		m.MemoryMax = types.Int64Value(p.MemoryMax)
	}
	var diags diag.Diagnostics
	m.profileDoors.load(ctx, p, &diags)
	m.Env = tableOr(ctx, p.Env, m.Env, &diags)
	m.SecretEnv = tableOr(ctx, p.SecretEnv, m.SecretEnv, &diags)
	m.Labels = tableOr(ctx, p.Labels, m.Labels, &diags)
	return diags
}
