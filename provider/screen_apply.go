// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// applier carries one create or update of a screen through.
type applier struct {
	cluster *cluster
	client  *api.Client
	model   *screenModel
	diags   *diag.Diagnostics
	wanted  nomadjob.Wanted
	job     *api.Job // as rendered
}

// applier looks up what the screen names. The diagnostics tell what is missing.
func (r *screenResource) applier(ctx context.Context, m *screenModel, diags *diag.Diagnostics) *applier {
	client, d := r.cluster.client(ctx)
	diags.Append(d...)
	if diags.HasError() {
		return nil
	}
	a := &applier{cluster: r.cluster, client: client, model: m, diags: diags}
	a.wanted = nomadjob.Wanted{
		Namespace: m.Namespace.ValueString(), Region: r.cluster.region, Records: r.cluster.prefix, Name: m.Name.ValueString(), JobID: m.JobID.ValueString(),
		Placement: nomadjob.DefaultPlacement(), Triggers: triggersHash(ctx, m), Image: m.Image.ValueString(),
		Stopped: m.DesiredState.ValueString() == stateStopped,
	}
	table := reader{ctx: ctx}
	table.table(m.Meta, &a.wanted.Meta)
	diags.Append(table.diags...)
	a.profile(ctx)
	if !m.Placement.IsNull() {
		a.placement(ctx)
	}
	a.image(ctx)
	return a
}

func (a *applier) profile(ctx context.Context) {
	rec := a.lookup(ctx, nomadjob.ProfileKind, "profile", a.model.Profile.ValueString())
	if rec == nil {
		return
	}
	p := nomadjob.DefaultProfile()
	a.decode(rec, "profile", &p)
	a.wanted.Profile, a.wanted.ProfileName, a.wanted.ProfileRef = p, rec.Name, rec.Ref()
}

func (a *applier) placement(ctx context.Context) {
	rec := a.lookup(ctx, nomadjob.PlacementKind, "placement", a.model.Placement.ValueString())
	if rec == nil {
		return
	}
	p := nomadjob.DefaultPlacement()
	a.decode(rec, "placement", &p)
	a.wanted.Placement, a.wanted.PlacementRef = p, rec.Ref()
}

// decode reads a record that may come from elsewhere, so its rules are checked again.
func (a *applier) decode(rec *nomadjob.Record, attribute string, into validated) {
	err := json.Unmarshal(rec.Spec, into)
	if err == nil {
		err = into.Validate(rec.Name)
	}
	if err != nil {
		a.diags.AddAttributeError(path.Root(attribute), fmt.Sprintf("The %s %q cannot be used", attribute, rec.Name),
			fmt.Sprintf("Its record breaks the rules: %v. Nothing was started.", err))
	}
}

// lookup reads a record; where a ref names a version, it must still be that one.
func (a *applier) lookup(ctx context.Context, kind nomadjob.Kind, attribute, ref string) *nomadjob.Record {
	name, hash, _ := nomadjob.ParseRef(ref)
	namespace := a.model.Namespace.ValueString()
	rec, err := a.cluster.records(a.client).Read(ctx, kind, namespace, name)
	switch {
	case errors.Is(err, nomadjob.ErrNoRecord):
		a.diags.AddAttributeError(path.Root(attribute), fmt.Sprintf("No %s %q in namespace %q", attribute, name, namespace),
			fmt.Sprintf("The screen names it, but there is no such record. Make it with a botscreen_%s in the same namespace. %s", attribute, unchanged))
		return nil
	case err != nil:
		a.diags.Append(a.cluster.explain(err, operation{
			doing: fmt.Sprintf("read variables under %s/%s", a.cluster.prefix, kind), namespace: namespace,
			needs: fmt.Sprintf("variables {\n  path \"%s/*\" {\n    capabilities = [\"list\", \"read\"]\n  }\n}", a.cluster.prefix),
		}))
		return nil
	case hash != "" && rec.Ref() != ref:
		a.diags.AddAttributeError(path.Root(attribute), fmt.Sprintf("The %s %q was changed by someone else since this plan", attribute, name),
			fmt.Sprintf("The plan was made for version %s, the record is %s, changed by %s. Nothing was started. Run plan again to see their change.",
				ref, rec.Ref(), screen.Distrust(first(rec.ChangedBy, "an unknown program"))))
		return nil
	}
	return &rec
}

// image decides what a sandbox runs.
func (a *applier) image(ctx context.Context) {
	text := a.wanted.Image
	if text == "" || a.diags.HasError() {
		return
	}
	if a.wanted.Placement.Isolation == string(screen.Host) {
		a.diags.AddAttributeWarning(pathImage, "This image is not used", "The placement puts the desktop on the host, which runs no image.")
	}
	if pinnedForm.MatchString(text) {
		return
	}
	rec := a.lookup(ctx, nomadjob.ImageKind, "image", text)
	if rec == nil {
		return
	}
	var spec nomadjob.Image
	if err := json.Unmarshal(rec.Spec, &spec); err != nil || spec.Image == "" {
		a.diags.AddAttributeError(pathImage, fmt.Sprintf("The sandbox image %q cannot be used", text), "Its record holds no pinned image. Nothing was started.")
		return
	}
	a.wanted.Image, a.wanted.ImageRef = spec.Image, rec.Ref()
}

// register gives the job to Nomad, checked against the index; 0: there must be none.
func (a *applier) register(ctx context.Context, index uint64, generation string) *nomadjob.Registration {
	a.wanted.Generation = generation
	a.job = nomadjob.Render(a.wanted)
	name := a.model.Name.ValueString()
	reg, err := nomadjob.Register(ctx, a.client, a.job, index)
	switch {
	case err == nil:
		return reg
	case connection.Classify(err) == connection.Conflict && index == 0:
		d := exists("screen", name, a.model.Namespace.ValueString(), "botscreen_screen")
		a.diags.AddAttributeError(path.Root("name"), d.Summary(), fmt.Sprintf("The job %s is there. %s", a.model.JobID.ValueString(), d.Detail()))
	case connection.Classify(err) == connection.Conflict:
		a.diags.Append(asJobConflict(err, name, index))
	default:
		a.diags.Append(a.cluster.explain(err, submitJob(a.model, "submit")))
	}
	return nil
}

// await waits for the desktop, or for its end, and tells why it did not come.
func (a *applier) await(ctx context.Context, reg *nomadjob.Registration, limit time.Duration) {
	goal := nomadjob.Goal(a.model.WaitFor.ValueString())
	if a.wanted.Stopped {
		if err := nomadjob.AwaitEnd(ctx, a.client, a.model.Namespace.ValueString(), a.model.JobID.ValueString()); err != nil {
			a.diags.Append(a.cluster.explain(err, readJob(a.model)))
		}
		return
	}
	if err := nomadjob.Await(ctx, a.client, reg.Job, reg.EvalID, goal); err != nil {
		a.diags.Append(a.cluster.notUp(err, a.wanted, limit, readJob(a.model)))
	}
}

// notUp says why a desktop did not come: no node for it, its end, or what else went wrong.
// What op keeps is what there is now.
func (c *cluster) notUp(err error, w nomadjob.Wanted, limit time.Duration, op operation) diag.Diagnostic {
	var unplaced *nomadjob.UnplacedError
	var failed *nomadjob.FailedError
	switch {
	case errors.As(err, &unplaced):
		return c.unplaced(unplaced, w, diag.SeverityError)
	case errors.As(err, &failed):
		return notStarted(w.Name, failed, limit, op.kept)
	}
	return c.explain(err, op)
}

// notStarted quotes the driver's last words.
func notStarted(name string, f *nomadjob.FailedError, limit time.Duration, kept string) diag.Diagnostic {
	summary := fmt.Sprintf("The desktop %q did not start", name)
	if f.Timeout {
		summary = fmt.Sprintf("The desktop %q did not start within %s", name, limit)
	}
	var b strings.Builder
	if len(f.Events) > 0 {
		b.WriteString("The last events of its task:\n\n")
		for _, e := range f.Events {
			b.WriteString("  " + e.String() + "\n")
		}
		b.WriteString("\n")
	}
	if f.Alloc != "" {
		fmt.Fprintf(&b, "Its allocation is %s: see `nomad alloc status %s`. ", f.Status, f.Alloc[:min(8, len(f.Alloc))])
	}
	b.WriteString(first(kept, "A create leaves nothing behind: the job was removed again. After an update the state is what it was before, and the job is the new one: plan again to see it."))
	return diag.NewErrorDiagnostic(summary, b.String())
}

// wantedOf is what a job says about itself, as far as a refusal tells it.
func wantedOf(name string, job *api.Job) nomadjob.Wanted {
	w := nomadjob.Wanted{Name: name, PlacementRef: job.Meta[nomadjob.MetaPlacement], Profile: nomadjob.DefaultProfile(), Placement: nomadjob.DefaultPlacement()}
	task := job.TaskGroups[0].Tasks[0]
	if kind, ok := task.Config["isolation"].(string); ok {
		w.Placement.Isolation = kind
	}
	if r := task.Resources; r != nil && r.MemoryMB != nil && r.CPU != nil {
		w.Profile.Memory, w.Profile.CPU = int64(*r.MemoryMB), int64(*r.CPU)
	}
	return w
}

// unplaced says that no node can take the screen. It never suggests the host without the
// name of the option that allows it.
func (c *cluster) unplaced(e *nomadjob.UnplacedError, w nomadjob.Wanted, severity diag.Severity) diag.Diagnostic {
	placement, _, _ := strings.Cut(first(w.PlacementRef, "(built-in)"), "@")
	reasons := "  " + strings.Join(e.Reasons, "\n  ")
	summary := "No node can host this desktop in a sandbox"
	detail := fmt.Sprintf("The scheduler says:\n\n%s\n\nNothing was started on the host. To allow that, set %s = true on placement %s.", reasons, nomadjob.OptIn, placement)
	at := path.Root("placement")
	switch {
	case e.Full && !e.Filtered:
		at = path.Root("profile")
		summary = "Every suitable node is full"
		detail = fmt.Sprintf("The desktop needs %d MiB of memory and %d MHz:\n\n%s\n\nStop something, add a node, or lower memory and cpu of the profile.", w.Profile.Memory, w.Profile.CPU, reasons)
	case w.Placement.WantsHost():
		summary = "No node can host this desktop"
		detail = fmt.Sprintf("The scheduler says:\n\n%s\n\nThe placement %s allows the host; the node's operator must allow it too, with %s = true in the plugin's config.", reasons, placement, nomadjob.OptIn)
	}
	if severity == diag.SeverityWarning {
		return diag.NewAttributeWarningDiagnostic(at, summary, detail)
	}
	return diag.NewAttributeErrorDiagnostic(at, summary, detail)
}

// refuseHeld looks once more, just before the change, whether a person has the screen.
func (a *applier) refuseHeld(ctx context.Context, change screenChange) {
	if !change.restarts || a.model.Force.ValueBool() {
		return
	}
	now, err := nomadjob.Lookup(ctx, a.client, a.model.Namespace.ValueString(), a.model.JobID.ValueString())
	if err != nil {
		a.diags.Append(a.cluster.explain(err, readJob(a.model)))
		return
	}
	if now.Held() {
		a.diags.Append(held(a.model.Name.ValueString(), now.Screen, now.LeaseSince, "This change starts the desktop anew and"))
	}
}

func held(name string, s nomadjob.Screen, since time.Time, what string) diag.Diagnostic {
	return heldBy(name, since.UTC().Format("2006-01-02 15:04:05 UTC"), s.Epoch, what)
}

func heldBy(name, since string, epoch uint64, what string) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(path.Root("force"), fmt.Sprintf("A person holds the screen %q", name),
		fmt.Sprintf("A person has controlled it since %s (epoch %d). %s would end what they do. "+
			"Wait until it is handed back, or set force = true%s. Nothing was changed.", since, epoch, what,
			map[bool]string{true: " and apply that first", false: ""}[strings.HasPrefix(what, "Destroying")]))
}

// finish reads what became of the screen into the model and the private state.
func (a *applier) finish(ctx context.Context, private privateWriter) {
	found, err := nomadjob.Lookup(ctx, a.client, a.model.Namespace.ValueString(), a.model.JobID.ValueString())
	if err != nil {
		a.diags.Append(a.cluster.explain(err, operation{
			doing: "read the job " + a.model.JobID.ValueString(), kept: "The desktop was started; plan again to see it.",
		}))
		return
	}
	keepIndex(ctx, private, *found.Job.JobModifyIndex, a.diags)
	keepJob(ctx, private, a.job, a.diags)
	a.model.observe(ctx, found, nil, a.diags)
}
