// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// ticketResource mints a ticket for this run and revokes it at its end.
type ticketResource struct{ cluster *cluster }

var _ ephemeral.EphemeralResourceWithClose = (*ticketResource)(nil)

func newTicket() ephemeral.EphemeralResource { return &ticketResource{} }

type ticketModel struct {
	Screen    types.String `tfsdk:"screen"`
	Namespace types.String `tfsdk:"namespace"`
	Ticket    types.String `tfsdk:"ticket"`
	URL       types.String `tfsdk:"url"`
	ExpiresAt types.String `tfsdk:"expires_at"`
}

// openTicket is what Close needs: nothing of it opens anything.
type openTicket struct {
	Namespace string `json:"namespace"`
	Screen    string `json:"screen"`
	ID        string `json:"id"`
}

const ticketKey = "ticket"

func (r *ticketResource) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_viewer_ticket"
}

func (r *ticketResource) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A ticket that lets one viewer watch a screen, for this run only: Terraform opens it in the plan and in the apply, and it is revoked when the run ends. " +
			"It is for provisioners, write-only arguments and provider blocks, such as a smoke test after an apply. **It is no way to hand a URL to a person**: that is `botscreen view`.\n\n" +
			"The screen's supervisor makes it over Nomad's exec stream (capabilities `alloc-exec` and `alloc-node-exec`); it only watches, and it is in no plan and in no state.",
		Attributes: map[string]schema.Attribute{
			"screen":     schema.StringAttribute{Required: true, MarkdownDescription: "The screen: its `id`, its name, or the ID of its job."},
			"namespace":  schema.StringAttribute{Optional: true, Computed: true, Validators: []validator.String{namespaceValidator{}}, MarkdownDescription: "Nomad namespace. Default: the one in `screen`, else the provider's."},
			"ticket":     schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The ticket. It opens one stream."},
			"url":        schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "Where a browser sees the screen with it; null where the screen has no viewer listener."},
			"expires_at": schema.StringAttribute{Computed: true, MarkdownDescription: "When it expires by itself, RFC 3339."},
		},
	}
}

func (r *ticketResource) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	asCluster(req.ProviderData, &r.cluster)
}

func (r *ticketResource) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m ticketModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	name, namespace := splitID(m.Screen.ValueString())
	m.Namespace = types.StringValue(first(m.Namespace.ValueString(), namespace, r.cluster.defaultNamespace()))
	c, diags := r.cluster.dial(ctx, m.Namespace.ValueString(), name)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	defer c.Close()
	ticket, err := c.MintTicket(ctx, control.TicketRequest{Mode: control.Watch})
	if err != nil {
		resp.Diagnostics.Append(r.cluster.explain(err, ticketOperation("make a ticket for", name, m.Namespace.ValueString(), "No ticket was made.")))
		return
	}
	m.Ticket, m.URL = types.StringValue(string(ticket.Secret)), optional(ticket.URL())
	m.ExpiresAt = types.StringValue(ticket.Expires.UTC().Format(time.RFC3339))
	open, err := json.Marshal(openTicket{Namespace: m.Namespace.ValueString(), Screen: name, ID: ticket.ID})
	if err != nil {
		resp.Diagnostics.AddError("The ticket cannot be kept", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, ticketKey, open)...)
	resp.Diagnostics.Append(resp.Result.Set(ctx, m)...)
}

// Close revokes the ticket. One that has expired, or whose screen is gone, is as good.
func (r *ticketResource) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	text, diags := req.Private.GetKey(ctx, ticketKey)
	resp.Diagnostics.Append(diags...)
	var open openTicket
	if len(text) == 0 || json.Unmarshal(text, &open) != nil {
		return
	}
	c, diags := r.cluster.dial(ctx, open.Namespace, open.Screen)
	if diags.HasError() {
		return // no screen, no ticket
	}
	defer c.Close()
	err := c.RevokeTicket(ctx, open.ID)
	if kind := control.KindOf(err); err != nil && kind != control.Gone && kind != control.NotFound {
		resp.Diagnostics.AddWarning("A ticket was not revoked",
			fmt.Sprintf("The ticket for %s could not be revoked: %s. It expires by itself within a minute.", open.Screen, cause(err)))
	}
}

// splitID takes NAME@NAMESPACE apart.
func splitID(id string) (name, namespace string) {
	name, hash, ok := nomadjob.ParseRef(id)
	if ok && hash == "" {
		return name, ""
	}
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == '@' {
			return id[:i], id[i+1:]
		}
	}
	return id, ""
}

func (c *cluster) defaultNamespace() string {
	if c == nil {
		return ""
	}
	return c.namespace.ValueString()
}

// dial reaches the supervisor of a screen.
func (c *cluster) dial(ctx context.Context, namespace, name string) (*control.Client, diag.Diagnostics) {
	client, diags := c.client(ctx)
	if diags.HasError() {
		return nil, diags
	}
	all, err := nomadjob.List(ctx, client, namespace)
	if err == nil {
		var found nomadjob.Screen
		found, err = nomadjob.Choose(all, name)
		if err != nil {
			found, err = nomadjob.Choose(all, "botscreen-"+name)
		}
		if err == nil && found.Live() {
			exec, execErr := c.conn.Exec(ctx)
			if execErr == nil {
				return control.NewClient(nomadjob.Dial(exec, found, control.Hello{V: control.Version})), diags
			}
			err = execErr
		}
	}
	var missing *nomadjob.NotFoundError
	if err == nil || errors.As(err, &missing) {
		diags.AddAttributeError(path.Root("screen"), fmt.Sprintf("No running screen %q in namespace %q", screen.Distrust(name), namespace),
			"Tickets are the screen's own, so it must run. Check `screen`, or start it.")
		return nil, diags
	}
	diags.Append(c.explain(err, operation{doing: "find the screen " + name, namespace: namespace, needs: `capabilities = ["list-jobs", "read-job"]`}))
	return nil, diags
}

// ticketOperation is a call on a screen's tickets, and the rights that it needs.
func ticketOperation(verb, name, namespace, kept string) operation {
	return operation{doing: verb + " the screen " + name, namespace: namespace, needs: `capabilities = ["read-job", "alloc-exec", "alloc-node-exec"]`, kept: kept}
}
