// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

var pathNamespace = path.Root("namespace")

// metaOf is the key of a job's meta that names a record of a kind.
var metaOf = map[nomadjob.Kind]string{
	nomadjob.ProfileKind: nomadjob.MetaProfile, nomadjob.PlacementKind: nomadjob.MetaPlacement, nomadjob.ImageKind: nomadjob.MetaImageRef,
}

// jobCache lists the jobs of a namespace once for all records of a run: destroying a
// thousand profiles must not list a thousand times.
type jobCache struct {
	mu     sync.Mutex // guards byName
	byName map[string][]*api.JobListStub
}

func (j *jobCache) list(ctx context.Context, client *api.Client, namespace string) ([]*api.JobListStub, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if all, ok := j.byName[namespace]; ok {
		return all, nil
	}
	all, _, err := client.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}},
		(&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if j.byName == nil {
		j.byName = map[string][]*api.JobListStub{}
	}
	j.byName[namespace] = all
	return all, nil
}

// users are the screens that are not stopped and name a record. The list may be of the
// beginning of the run, so a job in it is asked for once more.
func (c *cluster) users(ctx context.Context, client *api.Client, namespace string, names func(meta map[string]string) bool) ([]string, error) {
	all, err := c.jobs.list(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, stub := range all {
		if !names(stub.Meta) || stub.Stop {
			continue
		}
		job, _, err := client.Jobs().Info(stub.ID, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
		if err != nil {
			if connection.Classify(err) == connection.NotFound {
				continue
			}
			return nil, err
		}
		if names(job.Meta) && (job.Stop == nil || !*job.Stop) {
			out = append(out, first(job.Meta[nomadjob.MetaName], stub.ID))
		}
	}
	return out, nil
}

func (c *cluster) names(meta map[string]string, kind nomadjob.Kind, name string) bool {
	if first(meta[nomadjob.MetaRecords], nomadjob.DefaultPrefix) != c.prefix {
		return false
	}
	ref := meta[metaOf[kind]]
	return ref == name || strings.HasPrefix(ref, name+"@")
}

func (r *recordResource[M, P]) refuseUsed(ctx context.Context, b *baseModel) diag.Diagnostics {
	return r.cluster.refuseUsed(ctx, r.word, b, func(meta map[string]string) bool { return r.cluster.names(meta, r.kind, b.Name.ValueString()) })
}

func (c *cluster) refuseUsed(ctx context.Context, word string, b *baseModel, names func(meta map[string]string) bool) diag.Diagnostics {
	client, diags := c.client(ctx)
	if diags.HasError() {
		return diags
	}
	users, err := c.users(ctx, client, b.Namespace.ValueString(), names)
	if err != nil {
		diags.Append(c.explain(err, operation{doing: "list the jobs that use it", namespace: b.Namespace.ValueString(), needs: `capabilities = ["list-jobs", "read-job"]`}))
		return diags
	}
	if len(users) > 0 {
		plural := "screens"
		if len(users) == 1 {
			plural = "screen"
		}
		diags.AddError(fmt.Sprintf("%s %q is used by %d %s", strings.ToUpper(word[:1])+word[1:], b.Name.ValueString(), len(users), plural),
			fmt.Sprintf("These name it and are not stopped: %s. Stop or change them first, or set force_destroy = true and apply that. %s", strings.Join(users, ", "), unchanged))
	}
	return diags
}
