// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
)

var (
	_ isolation.Checker = (*Boundary)(nil)
	_ isolation.Imager  = (*Boundary)(nil)
)

// Refusal asks the engine now.
func (b *Boundary) Refusal(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return b.Check(ctx).Reason
}

// Resolve takes the image that is on the node, and pulls only one that is not: a tag
// that moved at its registry never changes a screen behind its owner's back (P5).
func (b *Boundary) Resolve(ctx context.Context, wanted isolation.ImageOrder, pulling func()) (isolation.Image, error) {
	found, err := b.Find(ctx, wanted.Reference)
	if errors.Is(err, isolation.ErrNoImage) {
		pulling()
		img, err := b.Pull(ctx, bare(wanted.Reference), "", wanted.MaxBytes)
		return img.here(), err
	}
	return found, err
}

// bare takes away apptainer's way to say registry.
func bare(reference string) string { return strings.TrimPrefix(reference, "docker://") }

// Find asks the engine what it has.
func (b *Boundary) Find(ctx context.Context, reference string) (isolation.Image, error) {
	img, err := b.Inspect(ctx, bare(reference))
	return img.here(), err
}

// Fetch pulls. An image that was built or loaded here has no registry to ask: it is what
// the engine has by now.
func (b *Boundary) Fetch(ctx context.Context, wanted isolation.ImageOrder) (isolation.Image, error) {
	img, err := b.Inspect(ctx, bare(wanted.Reference))
	switch {
	case err == nil && len(img.Digests) == 0:
		return img.here(), nil
	case err != nil && !errors.Is(err, isolation.ErrNoImage):
		return isolation.Image{}, err
	}
	img, err = b.Pull(ctx, bare(wanted.Reference), "", wanted.MaxBytes)
	return img.here(), err
}

// Latest lets the engine ask the registry, with its own mirrors and credentials.
func (b *Boundary) Latest(ctx context.Context, reference string) (string, error) {
	img, err := b.Inspect(ctx, bare(reference))
	if err == nil && len(img.Digests) == 0 {
		return img.digest(), nil // built or loaded here
	}
	found, err := b.api.DistributionInspect(ctx, bare(reference), "")
	if err != nil {
		return "", fmt.Errorf("ask the registry of %s: %w", reference, b.explain(err))
	}
	return found.Descriptor.Digest.String(), nil
}

// here is the image for an order; the zero Image is none.
func (i Image) here() isolation.Image {
	if i.ID == "" {
		return isolation.Image{}
	}
	return isolation.Image{Reference: i.ID, Digest: i.digest()}
}

// digest is what the image was pulled by, else, for one that was built or loaded here,
// that of its configuration.
func (i Image) digest() string {
	for _, d := range i.Digests {
		if _, digest, ok := strings.Cut(d, "@"); ok {
			return digest
		}
	}
	return i.ID
}
