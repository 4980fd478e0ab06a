// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// Sweep removes containers of this driver's owner whose instance nobody keeps and that
// are older than grace: a launch that is going on has no record yet. It returns their
// names. Only containers of the same owner are looked at: labels are no proof of a run,
// but who may write them has the engine anyway.
func (b *Boundary) Sweep(ctx context.Context, keep func(instance string) bool, grace time.Duration) ([]string, error) {
	if b.owner == "" {
		return nil, errors.New("sweep containers: this driver has no owner name")
	}
	all, err := b.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelOwner+"="+b.owner))})
	if err != nil {
		return nil, fmt.Errorf("sweep containers: %w", b.explain(err))
	}
	var removed []string
	var errs []error
	for _, c := range all {
		instance := c.Labels[labelInstance]
		if instance == "" || time.Since(time.Unix(c.Created, 0)) < grace || keep(instance) {
			continue
		}
		if err := b.discard(ctx, c.ID); err != nil {
			errs = append(errs, fmt.Errorf("sweep containers: %w", b.explain(err)))
			continue
		}
		removed = append(removed, strings.TrimPrefix(strings.Join(c.Names, ","), "/"))
	}
	return removed, errors.Join(errs...)
}
