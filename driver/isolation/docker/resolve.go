// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"

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
	reference := strings.TrimPrefix(wanted.Reference, "docker://") // apptainer's way to say registry
	img, err := b.Inspect(ctx, reference)
	var refused *RefusedError
	if errors.As(err, &refused) && errdefs.IsNotFound(refused.Err) {
		pulling()
		img, err = b.Pull(ctx, reference, "", wanted.MaxBytes)
	}
	if err != nil {
		return isolation.Image{}, err
	}
	return isolation.Image{Reference: img.ID, Digest: img.digest()}, nil
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
