// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// screenAction does something to one screen, now (Terraform 1.14 and later). Nothing can be
// done only by an action: an attribute of botscreen_screen or the command does it as well.
type screenAction struct {
	suffix string // of its type
	about  string
	// job says that it changes the screen's job, and so has the attributes for that.
	job     bool
	do      func(i *invocation, ctx context.Context)
	cluster *cluster
}

var _ action.ActionWithConfigure = (*screenAction)(nil)

func newRestartAction() action.Action {
	return &screenAction{suffix: "screen_restart", job: true, do: (*invocation).restart,
		about: "Starts the desktop of a screen anew and waits until it is ready, as another value of `restart_triggers` does. Windows are lost; the home directory and its logins stay. " +
			"While a person holds the screen it is refused unless `force` is set."}
}

func newStopAction() action.Action {
	return &screenAction{suffix: "screen_stop", job: true, do: (*invocation).stop,
		about: "Stops a screen and leaves its job in Nomad, as `desired_state = \"stopped\"` does: a screen for which `desired_state` is not written stays stopped. " +
			"While a person holds the screen it is refused unless `force` is set."}
}

func newRevokeAction() action.Action {
	return &screenAction{suffix: "tickets_revoke", do: (*invocation).revoke,
		about: "Ends every open ticket of a screen, and the views that tickets opened, as `botscreen ticket --revoke all` does. People who came through Nomad stay."}
}

func (a *screenAction) Metadata(_ context.Context, req action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + a.suffix
}

func (a *screenAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	all := map[string]schema.Attribute{
		"screen": schema.StringAttribute{Required: true, MarkdownDescription: "The screen: its `id`, its name, or the ID of its job."},
		"namespace": schema.StringAttribute{Optional: true, Validators: []validator.String{namespaceValidator{}},
			MarkdownDescription: "Nomad namespace. Default: the one in `screen`, else the provider's."},
	}
	if a.job {
		all["reason"] = schema.StringAttribute{Optional: true, Validators: []validator.String{stringvalidator.LengthAtMost(256)},
			MarkdownDescription: "Why, in a sentence of at most 256 bytes. The job keeps it in its meta, as `botscreen_reason`."}
		all["force"] = schema.BoolAttribute{Optional: true, MarkdownDescription: "Do it also while a person holds the screen. Default: `false`."}
		all["timeout"] = schema.StringAttribute{Optional: true, Validators: []validator.String{durationValidator{least: second, most: hour}},
			MarkdownDescription: "How long it may wait, `1s` to `1h`. Default: `5m`."}
	}
	resp.Schema = schema.Schema{MarkdownDescription: a.about, Attributes: all}
}

func (a *screenAction) Configure(_ context.Context, req action.ConfigureRequest, _ *action.ConfigureResponse) {
	asCluster(req.ProviderData, &a.cluster)
}

// invocation is one call of an action.
type invocation struct {
	cluster   *cluster
	resp      *action.InvokeResponse
	name      string // of the screen, as it was written
	namespace string
	reason    string
	force     bool
	limit     time.Duration
}

func (a *screenAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var name, namespace, reason, timeout types.String
	var force types.Bool
	for attribute, into := range map[string]any{"screen": &name, "namespace": &namespace} {
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attribute), into)...)
	}
	if a.job {
		for attribute, into := range map[string]any{"reason": &reason, "timeout": &timeout, "force": &force} {
			resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attribute), into)...)
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	i := &invocation{cluster: a.cluster, resp: resp, reason: reason.ValueString(), force: force.ValueBool(), limit: createTimeout}
	if d, err := time.ParseDuration(timeout.ValueString()); err == nil {
		i.limit = d
	}
	i.name, i.namespace = splitID(name.ValueString())
	i.namespace = first(namespace.ValueString(), i.namespace, a.cluster.defaultNamespace())
	ctx, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	a.do(i, ctx)
}

// say tells Terraform's user what happens. It lands in logs: never a ticket.
func (i *invocation) say(format string, args ...any) {
	i.resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf(format, args...)})
}

// found is the screen that is meant, if it may be changed now; nil: it is told why not.
func (i *invocation) found(ctx context.Context, verb string) *nomadjob.Declared {
	client, diags := i.cluster.client(ctx)
	if i.resp.Diagnostics.Append(diags...); diags.HasError() {
		return nil
	}
	id := jobNamed(ctx, client, i.namespace, i.name)
	found, err := nomadjob.Lookup(ctx, client, i.namespace, id)
	switch {
	case connection.Classify(err) == connection.NotFound || err == nil && !nomadjob.IsScreen(found.Job):
		i.resp.Diagnostics.AddAttributeError(path.Root("screen"), fmt.Sprintf("No screen %q in namespace %q", screen.Distrust(i.name), i.namespace),
			fmt.Sprintf("There is no job %s with a task of the driver %s. Check screen and namespace.", screen.Distrust(id), nomadjob.Driver))
		return nil
	case err != nil:
		i.resp.Diagnostics.Append(i.cluster.explain(err, i.operation("read", id)))
		return nil
	case found.Held() && !i.force:
		i.resp.Diagnostics.Append(held(i.name, found.Screen, found.LeaseSince, verb))
		return nil
	}
	return found
}

func (i *invocation) operation(verb, job string) operation {
	needs := `capabilities = ["read-job", "list-jobs", "submit-job"]`
	return operation{doing: verb + " the job " + job, namespace: i.namespace, needs: needs, kept: "Nothing was changed."}
}

func (i *invocation) restart(ctx context.Context) {
	found := i.found(ctx, "Restarting it")
	if found == nil {
		return
	}
	if found.Status == nomadjob.StatusStopped && found.Job.Stop != nil && *found.Job.Stop {
		i.resp.Diagnostics.AddAttributeError(path.Root("screen"), fmt.Sprintf("The screen %q is stopped", i.name),
			"Somebody stopped its job, so there is no desktop to restart. Set desired_state = \"running\" on its botscreen_screen to start it.")
		return
	}
	client, diags := i.cluster.client(ctx)
	if i.resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	i.say("Restarting the desktop of %s", i.name)
	reg, err := nomadjob.Restart(ctx, client, found.Job, i.reason)
	if err != nil {
		i.failed(err, "restart", found)
		return
	}
	if err := nomadjob.Await(ctx, client, reg.Job, reg.EvalID, nomadjob.Running); err != nil {
		op := i.operation("follow", *found.Job.ID)
		op.kept = "The job has its new generation, and the desktop that ran has ended: see `botscreen status`."
		i.resp.Diagnostics.Append(i.cluster.notUp(err, wantedOf(i.name, found.Job), i.limit, op))
		return
	}
	i.say("The desktop of %s is ready", i.name)
}

func (i *invocation) stop(ctx context.Context) {
	found := i.found(ctx, "Stopping it")
	if found == nil {
		return
	}
	client, diags := i.cluster.client(ctx)
	if i.resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	i.say("Stopping %s", i.name)
	if found.Job.Stop == nil || !*found.Job.Stop {
		if err := nomadjob.Halt(ctx, client, found.Job, i.reason); err != nil {
			i.failed(err, "stop", found)
			return
		}
	}
	if err := nomadjob.AwaitEnd(ctx, client, i.namespace, *found.Job.ID); err != nil {
		op := i.operation("wait for the end of", *found.Job.ID)
		op.kept = "The job is stopped; its desktop may still be ending."
		i.resp.Diagnostics.Append(i.cluster.explain(err, op))
		return
	}
	i.say("%s has ended", i.name)
}

// failed tells why a job was not registered.
func (i *invocation) failed(err error, verb string, found *nomadjob.Declared) {
	if connection.Classify(err) == connection.Conflict {
		i.resp.Diagnostics.Append(asJobConflict(err, i.name, *found.Job.JobModifyIndex))
		return
	}
	i.resp.Diagnostics.Append(i.cluster.explain(err, i.operation(verb, *found.Job.ID)))
}

func (i *invocation) revoke(ctx context.Context) {
	c, diags := i.cluster.dial(ctx, i.namespace, i.name)
	if i.resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	defer c.Close()
	err := c.RevokeTicket(ctx, control.AllTickets)
	switch {
	case control.KindOf(err) == control.NotFound:
		i.say("No ticket of %s is open", i.name)
	case err != nil:
		i.resp.Diagnostics.Append(i.cluster.explain(err, ticketOperation("revoke the tickets of", i.name, i.namespace, "They expire by themselves within a minute.")))
	default:
		i.say("The tickets of %s and the views that they opened have ended", i.name)
	}
}
