// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/botscreen/botscreen/shared/screen"
)

var _ resource.ResourceWithMoveState = (*screenResource)(nil)

// MoveState takes a screen over from a nomad_job of the provider hashicorp/nomad, on
// whatever registry: `moved { from = nomad_job.x, to = botscreen_screen.x }`. It takes
// names only; the read that follows fills in the rest.
func (r *screenResource) MoveState(context.Context) []resource.StateMover {
	return []resource.StateMover{{StateMover: func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
		if req.SourceTypeName != "nomad_job" || !strings.HasSuffix(req.SourceProviderAddress, "hashicorp/nomad") {
			return // not ours to say anything about
		}
		var job struct {
			ID        string `json:"id"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		}
		if req.SourceRawState == nil || json.Unmarshal(req.SourceRawState.JSON, &job) != nil || job.ID == "" {
			resp.Diagnostics.AddError("The job cannot be taken over", "The state of the nomad_job names no job. Import the screen instead: terraform import ADDRESS NAME@NAMESPACE.")
			return
		}
		name := strings.TrimPrefix(first(job.Name, job.ID), "botscreen-")
		if !screen.Profile(name).Valid() {
			resp.Diagnostics.AddError("The job cannot be taken over", fmt.Sprintf("Its name %q cannot be a screen's: 1 to 63 lower-case letters, digits and hyphens.", screen.Distrust(name)))
			return
		}
		namespace := first(job.Namespace, r.cluster.defaultNamespace(), "default")
		for attribute, value := range map[string]string{"id": name + "@" + namespace, "name": name, "namespace": namespace, "job_id": job.ID} {
			resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root(attribute), value)...)
		}
	}}}
}
