// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/registry"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
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
		img, err := b.pull(ctx, wanted)
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
	img, err = b.pull(ctx, wanted)
	return img.here(), err
}

// Latest lets the engine ask the registry, with its own mirrors and credentials.
func (b *Boundary) Latest(ctx context.Context, wanted isolation.ImageOrder) (string, error) {
	img, err := b.Inspect(ctx, bare(wanted.Reference))
	if err == nil && len(img.Digests) == 0 {
		return img.digest(), nil // built or loaded here
	}
	auth, err := encodeAuth(wanted.Auth)
	if err != nil {
		return "", err
	}
	found, err := b.api.DistributionInspect(ctx, bare(wanted.Reference), auth)
	if err != nil {
		return "", fmt.Errorf("ask the registry of %s: %w", wanted.Reference, b.explain(err))
	}
	return found.Descriptor.Digest.String(), nil
}

func (b *Boundary) pull(ctx context.Context, wanted isolation.ImageOrder) (Image, error) {
	auth, err := encodeAuth(wanted.Auth)
	if err != nil {
		return Image{}, err
	}
	return b.Pull(ctx, bare(wanted.Reference), auth, wanted.MaxBytes)
}

// encodeAuth is the header by which an engine is told who it is to a registry.
func encodeAuth(a screen.RegistryAuth) (string, error) {
	if a.IsZero() {
		return "", nil
	}
	username, password := a.Reveal()
	text, err := registry.EncodeAuthConfig(registry.AuthConfig{Username: username, Password: password})
	if err != nil {
		return "", errors.New("the credentials for the registry cannot be encoded") // no word of theirs
	}
	return text, nil
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
