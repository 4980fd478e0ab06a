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

	"github.com/botscreen/botscreen/shared/screen"
)

// Sweep removes containers of this driver's owner whose instance nobody keeps and that
// are older than grace: a launch that is going on has no record yet. It returns their
// names. Rules of networks that are gone go too. Only containers of the same owner are looked at: labels are no proof of a run,
// but who may write them has the engine anyway.
func (b *Boundary) Sweep(ctx context.Context, keep func(instance string) bool, grace time.Duration) ([]string, error) {
	all, err := b.owned(ctx)
	if err != nil {
		return nil, fmt.Errorf("sweep containers: %w", err)
	}
	var removed []string
	var errs []error
	if !b.elsewhere.Load() {
		errs = append(errs, unshield(ctx))
	}
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

// SweepScreen removes containers of this owner that have one screen's labels, whatever their
// age. Nothing of the screen runs: what is there is left of a launch whose engine went away
// in the middle, or of an end while it was away.
func (b *Boundary) SweepScreen(ctx context.Context, id screen.ID) error {
	if b.owner == "" {
		return nil // whose a container is cannot be told
	}
	all, err := b.owned(ctx, filters.Arg("label", labelPrefix+"namespace="+id.Namespace), filters.Arg("label", labelPrefix+"profile="+string(id.Profile)))
	if err != nil {
		return fmt.Errorf("sweep containers: %w", err)
	}
	for _, c := range all {
		if err := b.discard(ctx, c.ID); err != nil {
			return fmt.Errorf("sweep containers: %w", err)
		}
	}
	return nil
}

// owned lists the containers of this driver's owner, running or not.
func (b *Boundary) owned(ctx context.Context, more ...filters.KeyValuePair) ([]container.Summary, error) {
	if b.owner == "" {
		return nil, errors.New("this driver has no owner name")
	}
	all := append([]filters.KeyValuePair{filters.Arg("label", labelOwner+"="+b.owner)}, more...)
	found, err := b.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(all...)})
	return found, b.explain(err)
}
