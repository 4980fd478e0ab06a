// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/shared/image"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// ValidateConfig judges the reference, and that a digest in it is the digest.
func (r *imageResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m imageModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || m.Reference.IsNull() || m.Reference.IsUnknown() || m.Kind.IsUnknown() {
		return
	}
	resp.Diagnostics.Append(m.judge()...)
}

func (m *imageModel) kind() image.Kind {
	return image.Kind(first(m.Kind.ValueString(), string(image.Docker)))
}

// judge says what is wrong with a reference that is known.
func (m *imageModel) judge() diag.Diagnostics {
	var diags diag.Diagnostics
	text := m.Reference.ValueString()
	ref, err := image.Parse(m.kind(), text)
	if err != nil {
		diags.AddAttributeError(path.Root("reference"), "Invalid reference", fmt.Sprintf("`reference` %v; it is %q.", err, text))
		return diags
	}
	if d := m.Digest; ref.Digest != "" && !d.IsNull() && !d.IsUnknown() && d.ValueString() != ref.Digest {
		diags.AddAttributeError(path.Root("digest"), "Two digests", fmt.Sprintf("`reference` says %s, `digest` says %s. Write one of them.", ref.Digest, d.ValueString()))
	}
	return diags
}

// pin is the digest that the configuration itself says, in digest or in reference.
func (m *imageModel) pin() (digest types.String) {
	if !m.Digest.IsNull() {
		return m.Digest
	}
	if m.Reference.IsUnknown() {
		return types.StringUnknown()
	}
	if ref, err := image.Parse(m.kind(), m.Reference.ValueString()); err == nil && ref.Digest != "" {
		return types.StringValue(ref.Digest)
	}
	return types.StringNull()
}

// ModifyPlan is the table of decisions. It is pure: it compares the configuration with the
// refreshed state, in which Read has put what is offered now.
func (r *imageResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var m, config imageModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !config.Reference.IsNull() && !config.Reference.IsUnknown() && !config.Kind.IsUnknown() {
		if resp.Diagnostics.Append(config.judge()...); resp.Diagnostics.HasError() {
			return
		}
	}
	if req.State.Raw.IsNull() {
		m.settle(r.cluster, config.Namespace, types.StringNull())
		m.planCreate(&config)
	} else {
		var old imageModel
		resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
		if resp.Diagnostics.HasError() {
			return
		}
		if m.settle(r.cluster, config.Namespace, old.Namespace) {
			resp.RequiresReplace.Append(pathNamespace)
		}
		if m.Kind.Equal(old.Kind) {
			resp.Diagnostics.Append(m.planUpdate(&config, &old)...)
		} else {
			m.planCreate(&config)
		}
	}
	m.derive()
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
}

// planCreate knows everything where the configuration pins, else what was written.
func (m *imageModel) planCreate(config *imageModel) {
	m.Recorded = types.BoolValue(true)
	m.Reference = config.Reference
	if config.Reference.IsNull() {
		m.Reference = types.StringUnknown() // the catalog's
	}
	m.ask()
	pin := config.pin()
	if !pin.IsNull() {
		m.pinned(pin)
		return
	}
	m.Digest = types.StringUnknown()
	m.Decision = types.StringValue(decidedInitial)
}

// ask plans that the offered digest will be looked up.
func (m *imageModel) ask() {
	unknown := types.StringUnknown()
	m.OfferedReference, m.OfferedDigest, m.DecidedDigest, m.CheckError = unknown, unknown, unknown, unknown
	m.UpdateAvailable = types.BoolUnknown()
}

// pinned plans a hard pin: nobody is asked.
func (m *imageModel) pinned(digest types.String) {
	m.Digest, m.DecidedDigest, m.OfferedDigest = digest, digest, digest
	m.OfferedReference, m.CheckError = m.Reference, types.StringNull()
	m.Decision, m.UpdateAvailable = types.StringValue(decidedPin), types.BoolValue(false)
	if digest.IsUnknown() {
		m.Decision, m.UpdateAvailable, m.CheckError = types.StringUnknown(), types.BoolUnknown(), types.StringUnknown()
	}
}

// planUpdate decides, in the order of the rules: a pin, another reference, the end of a
// pin, switch, keep or refuse.
func (m *imageModel) planUpdate(config, old *imageModel) diag.Diagnostics {
	var diags diag.Diagnostics
	m.keepFrom(old)
	if !old.Recorded.ValueBool() {
		m.Recorded = types.BoolValue(true)
		diags.AddWarning("The record of this image was deleted outside Terraform",
			fmt.Sprintf("It will be written again with the same digest, %s.", old.Digest.ValueString()))
	}
	pin := config.pin()
	rewritten := !config.Reference.IsNull() && !config.Reference.Equal(old.Reference)
	if rewritten {
		m.Reference = config.Reference
	}
	switch {
	case !pin.IsNull():
		if rewritten || !pin.Equal(old.Digest) || old.Decision.ValueString() != decidedPin {
			m.pinned(pin)
		}
	case rewritten:
		m.ask()
		m.Digest, m.Decision = types.StringUnknown(), types.StringValue(decidedReference)
	case old.Decision.ValueString() == decidedPin:
		m.ask()
		m.Decision = types.StringValue(keep)
	case old.OfferedDigest.IsNull():
	default:
		diags.Append(m.decide(old)...)
	}
	return diags
}

// keepFrom starts with what the state says.
func (m *imageModel) keepFrom(old *imageModel) {
	m.Reference, m.Digest, m.Image = old.Reference, old.Digest, old.Image
	m.OfferedReference, m.OfferedDigest = old.OfferedReference, old.OfferedDigest
	m.DecidedDigest, m.Decision, m.CheckError = old.DecidedDigest, old.Decision, old.CheckError
	m.UpdateAvailable, m.Recorded = old.UpdateAvailable, old.Recorded
}

func (m *imageModel) decide(old *imageModel) diag.Diagnostics {
	var diags diag.Diagnostics
	offered, decided, digest := old.OfferedDigest, old.DecidedDigest, old.Digest
	name := m.Name.ValueString()
	at := path.Root("on_default_change")
	switch answer := m.OnDefaultChange.ValueString(); {
	case answer == moveOn && !offered.Equal(digest):
		m.Digest, m.Reference, m.DecidedDigest = offered, old.OfferedReference, offered
		m.Decision, m.UpdateAvailable = types.StringValue(moveOn), types.BoolValue(false)
	case answer == keep && !offered.Equal(decided):
		m.DecidedDigest, m.Decision = offered, types.StringValue(keep)
		diags.AddAttributeWarning(at, "Default sandbox image changed: keeping the pinned one", fmt.Sprintf(
			"%s now resolves to %s; %q stays on %s.\nTo move, set on_default_change = \"switch\" or digest = %q.",
			old.OfferedReference.ValueString(), offered.ValueString(), name, digest.ValueString(), offered.ValueString()))
	case answer == refuse && !offered.Equal(decided):
		diags.AddAttributeError(at, "Default sandbox image changed: decide keep or switch", fmt.Sprintf(
			"%s now resolves to %s; %q is on %s.\nSet on_default_change = \"keep\" to stay or \"switch\" to move, or write digest = \"sha256:…\".",
			old.OfferedReference.ValueString(), offered.ValueString(), name, digest.ValueString()))
	}
	return diags
}

// derive computes what follows from reference and digest.
func (m *imageModel) derive() {
	m.Image, m.Ref = types.StringUnknown(), types.StringUnknown()
	if m.Reference.IsUnknown() || m.Digest.IsUnknown() || m.Name.IsUnknown() {
		return
	}
	ref, err := image.Parse(m.kind(), m.Reference.ValueString())
	if err != nil {
		return
	}
	m.Image = types.StringValue(ref.Pinned(m.Digest.ValueString()))
	if text, err := nomadjob.Canonical(m.spec()); err == nil {
		m.Ref = types.StringValue(nomadjob.Ref(nomadjob.ImageKind, m.Name.ValueString(), text))
	}
}

func (m *imageModel) spec() nomadjob.Image {
	return nomadjob.Image{
		Description: m.Description.ValueString(), Kind: m.Kind.ValueString(), Reference: m.Reference.ValueString(), Digest: m.Digest.ValueString(),
		Image: m.Image.ValueString(), Source: m.Source.ValueString(), OnDefaultChange: m.OnDefaultChange.ValueString(),
		Decided: m.DecidedDigest.ValueString(), Decision: m.Decision.ValueString(),
	}
}
