// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// profileDoors are the nested attributes of a profile: blocks of the job's `config {}`.
type profileDoors struct {
	Viewer      types.Object `tfsdk:"viewer"`
	AgentSocket types.Object `tfsdk:"agent_socket"`
	Browser     types.Object `tfsdk:"browser"`
	Docker      types.Object `tfsdk:"docker"`
	Apptainer   types.Object `tfsdk:"apptainer"`
}

type viewerModel struct {
	Port        types.String `tfsdk:"port"`
	StaticPort  types.Int64  `tfsdk:"static_port"`
	HostNetwork types.String `tfsdk:"host_network"`
	TLSCert     types.String `tfsdk:"tls_cert"`
	TLSKey      types.String `tfsdk:"tls_key"`
}

type agentSocketModel struct {
	Mode  types.String `tfsdk:"mode"`
	Group types.String `tfsdk:"group"`
	UIDs  types.List   `tfsdk:"uids"`
}

type browserModel struct {
	Enabled  types.Bool   `tfsdk:"enabled"`
	Args     types.List   `tfsdk:"args"`
	Sandbox  types.Bool   `tfsdk:"sandbox"`
	StartURL types.String `tfsdk:"start_url"`
}

type dockerModel struct {
	NetworkMode types.String `tfsdk:"network_mode"`
	ShmSizeMB   types.Int64  `tfsdk:"shm_size_mb"`
	PidsLimit   types.Int64  `tfsdk:"pids_limit"`
	Labels      types.Map    `tfsdk:"labels"`
}

type apptainerModel struct {
	Writable types.Bool  `tfsdk:"writable"`
	TmpfsMB  types.Int64 `tfsdk:"tmpfs_mb"`
}

var (
	viewerType = map[string]attr.Type{"port": types.StringType, "static_port": types.Int64Type, "host_network": types.StringType,
		"tls_cert": types.StringType, "tls_key": types.StringType}
	agentSocketType = map[string]attr.Type{"mode": types.StringType, "group": types.StringType, "uids": types.ListType{ElemType: types.Int64Type}}
	browserType     = map[string]attr.Type{"enabled": types.BoolType, "args": types.ListType{ElemType: types.StringType}, "sandbox": types.BoolType, "start_url": types.StringType}
	dockerType      = map[string]attr.Type{"network_mode": types.StringType, "shm_size_mb": types.Int64Type, "pids_limit": types.Int64Type,
		"labels": types.MapType{ElemType: types.StringType}}
	apptainerType = map[string]attr.Type{"writable": types.BoolType, "tmpfs_mb": types.Int64Type}
)

func doorAttributes() map[string]schema.Attribute {
	text := func(value, description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(value), MarkdownDescription: description}
	}
	number := func(value int64, description string) schema.Int64Attribute {
		return schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(value), MarkdownDescription: description}
	}
	flag := func(value bool, description string) schema.BoolAttribute {
		return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(value), MarkdownDescription: description}
	}
	written := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description}
	}
	d := nomadjob.DefaultProfile()
	var own profileDoors
	own.load(context.Background(), d, &diag.Diagnostics{})
	nested := func(value types.Object, description string, all map[string]schema.Attribute) schema.SingleNestedAttribute {
		return schema.SingleNestedAttribute{Optional: true, Computed: true, Default: objectdefault.StaticValue(value), MarkdownDescription: description, Attributes: all}
	}
	return map[string]schema.Attribute{
		"viewer": schema.SingleNestedAttribute{Optional: true,
			MarkdownDescription: "A listener for people with a ticket, on a port that the job asks Nomad for. Default: none. Without TLS only a loopback address is served.",
			Attributes: map[string]schema.Attribute{
				"port":         text(nomadjob.ViewerPort, "Label of the port in the job. Default: `viewer`."),
				"static_port":  schema.Int64Attribute{Optional: true, MarkdownDescription: "The port itself, 1 to 65535. Default: one that Nomad chooses."},
				"host_network": written("Host network of the nodes that the port is of. Default: Nomad's."),
				"tls_cert":     written("Certificate, PEM, from a Nomad variable: `PATH#KEY`. The task reads it with its own identity when it starts; Terraform never does."),
				"tls_key":      written("The certificate's key, PEM, from a Nomad variable: `PATH#KEY`. Programs on the desktop do not see it."),
			}},
		"agent_socket": nested(own.AgentSocket, "The agent's socket in the allocation's shared directory.", map[string]schema.Attribute{
			"mode":  text(d.AgentSocket.Mode, "`0600` or `0660` (default)."),
			"group": text("", "Group of the node, by name or number, that has it. Default: none."),
			"uids": schema.ListAttribute{Optional: true, Computed: true, ElementType: types.Int64Type, Default: listdefault.StaticValue(types.ListValueMust(types.Int64Type, nil)),
				MarkdownDescription: "Who is accepted besides root. The first one owns the socket; further ones have to be in the group. Default: `[]`."},
		}),
		"browser": nested(own.Browser, "The screen's one browser, which a person and the agent share. Its profile lies in the home and stays.", map[string]schema.Attribute{
			"enabled": flag(true, "Whether there is one. Default: `true`."),
			"args": schema.ListAttribute{Optional: true, Computed: true, ElementType: types.StringType, Default: listdefault.StaticValue(types.ListValueMust(types.StringType, nil)),
				MarkdownDescription: "Further switches, at most 64. Refused are those that open a debugging port, change the browser's profile or cache, load extensions, run other programs, or take the sandbox away. Default: `[]`."},
			"sandbox":   flag(true, "The browser's own sandbox. Where it cannot work the browser is refused; `false` starts it without, and the screen's status says so. Default: `true`."),
			"start_url": written("What it shows first: `http`, `https`, `file:///…` or `about:blank`. Default: a new tab."),
		}),
		"docker": nested(own.Docker, "What a container is made of, where the isolation is `docker`.", map[string]schema.Attribute{
			"network_mode": text(d.Docker.NetworkMode, "`none` (default), or `bridge`: a network of its own; the node and its metadata service stay reachable."),
			"shm_size_mb":  number(d.Docker.ShmSizeMB, "Size of `/dev/shm`, for the browser, in MiB: 64 to 65536. Default: 1024."),
			"pids_limit":   number(d.Docker.PidsLimit, "Processes and threads, 512 to 65536. Default: 2048."),
			"labels": schema.MapAttribute{Optional: true, Computed: true, ElementType: types.StringType, Default: mapdefault.StaticValue(types.MapValueMust(types.StringType, nil)),
				MarkdownDescription: "Labels of the container, for people. Default: `{}`."},
		}),
		"apptainer": nested(own.Apptainer, "What a container is made of, where the isolation is `apptainer`.", map[string]schema.Attribute{
			"writable": flag(false, "Changes to the image are kept in memory until the screen ends. Default: `false`."),
			"tmpfs_mb": number(d.Apptainer.TmpfsMB, "Size of `/tmp`, which is memory of the task, in MiB: 16 to 65536. Default: 1024."),
		}),
	}
}

// object takes a nested attribute apart; false: there is none.
func (r *reader) object(v types.Object, into any) bool {
	if !r.has(v) {
		return false
	}
	d := v.As(r.ctx, into, objectAs)
	r.diags.Append(d...)
	return !d.HasError()
}

// numbers takes a list of numbers.
func (r *reader) numbers(v types.List, into *[]int64) {
	if !r.has(v) {
		return
	}
	var out []int64
	for _, one := range v.Elements() {
		if n, ok := one.(types.Int64); ok && r.has(n) {
			out = append(out, n.ValueInt64())
		}
	}
	*into = out
}

func (m *profileDoors) spec(r *reader, p *nomadjob.Profile) {
	var viewer viewerModel
	if r.object(m.Viewer, &viewer) {
		p.Viewer = &nomadjob.Viewer{Port: nomadjob.ViewerPort}
		r.text(viewer.Port, &p.Viewer.Port)
		r.number(viewer.StaticPort, &p.Viewer.StaticPort)
		r.text(viewer.HostNetwork, &p.Viewer.HostNetwork)
		r.text(viewer.TLSCert, &p.Viewer.TLSCert)
		r.text(viewer.TLSKey, &p.Viewer.TLSKey)
		if viewer.TLSCert.IsUnknown() || viewer.TLSKey.IsUnknown() {
			p.Viewer.TLSCert, p.Viewer.TLSKey = "", "" // judged together, when both are known
		}
	}
	var socket agentSocketModel
	if r.object(m.AgentSocket, &socket) {
		r.text(socket.Mode, &p.AgentSocket.Mode)
		r.text(socket.Group, &p.AgentSocket.Group)
		r.numbers(socket.UIDs, &p.AgentSocket.UIDs)
		if socket.Group.IsUnknown() || socket.Mode.IsUnknown() {
			p.AgentSocket.UIDs = nil // nothing to hold them against yet
		}
	}
	var browser browserModel
	if r.object(m.Browser, &browser) {
		r.flag(browser.Enabled, &p.Browser.Enabled)
		r.words(browser.Args, &p.Browser.Args)
		r.flag(browser.Sandbox, &p.Browser.Sandbox)
		r.text(browser.StartURL, &p.Browser.StartURL)
	}
	var docker dockerModel
	if r.object(m.Docker, &docker) {
		r.text(docker.NetworkMode, &p.Docker.NetworkMode)
		r.number(docker.ShmSizeMB, &p.Docker.ShmSizeMB)
		r.number(docker.PidsLimit, &p.Docker.PidsLimit)
		r.table(docker.Labels, &p.Docker.Labels)
	}
	var apptainer apptainerModel
	if r.object(m.Apptainer, &apptainer) {
		r.flag(apptainer.Writable, &p.Apptainer.Writable)
		r.number(apptainer.TmpfsMB, &p.Apptainer.TmpfsMB)
	}
}

func (m *profileDoors) load(ctx context.Context, p nomadjob.Profile, diags *diag.Diagnostics) {
	object := func(kinds map[string]attr.Type, model any) types.Object {
		out, d := types.ObjectValueFrom(ctx, kinds, model)
		diags.Append(d...)
		return out
	}
	m.Viewer = types.ObjectNull(viewerType)
	if v := p.Viewer; v != nil {
		static := types.Int64Null()
		if v.StaticPort != 0 {
			static = types.Int64Value(v.StaticPort)
		}
		m.Viewer = object(viewerType, viewerModel{types.StringValue(v.Port), static, optional(v.HostNetwork), optional(v.TLSCert), optional(v.TLSKey)})
	}
	uids, d := types.ListValueFrom(ctx, types.Int64Type, append([]int64{}, p.AgentSocket.UIDs...))
	diags.Append(d...)
	m.AgentSocket = object(agentSocketType, agentSocketModel{types.StringValue(p.AgentSocket.Mode), types.StringValue(p.AgentSocket.Group), uids})
	args := listOf(ctx, append([]string{}, p.Browser.Args...), diags)
	m.Browser = object(browserType, browserModel{types.BoolValue(p.Browser.Enabled), args, types.BoolValue(p.Browser.Sandbox), optional(p.Browser.StartURL)})
	labels := p.Docker.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	table, d := types.MapValueFrom(ctx, types.StringType, labels)
	diags.Append(d...)
	m.Docker = object(dockerType, dockerModel{types.StringValue(p.Docker.NetworkMode), types.Int64Value(p.Docker.ShmSizeMB), types.Int64Value(p.Docker.PidsLimit), table})
	m.Apptainer = object(apptainerType, apptainerModel{types.BoolValue(p.Apptainer.Writable), types.Int64Value(p.Apptainer.TmpfsMB)})
}
