// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

var _ isolation.HomeKeeper = (*Boundary)(nil)

// homeVolume is a profile's own; two drivers that use one engine have two.
func (b *Boundary) homeVolume(id screen.ID) string {
	sum := sha256.Sum256([]byte(b.owner)) // a directory's name, in which an engine takes no slash
	return "botscreen-home-" + hex.EncodeToString(sum[:6]) + "-" + id.Hash()
}

// Homes are the volumes that a profile's home has on an engine elsewhere. Where no engine
// listens there are none.
func (b *Boundary) Homes(ctx context.Context, id screen.ID) ([]string, error) {
	if _, err := os.Stat(strings.TrimPrefix(b.endpoint, "unix://")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := b.api.VolumeInspect(ctx, b.homeVolume(id))
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find home: %w", b.explain(err))
	case found.Labels[labelOwner] != b.owner: // anybody may make one of that name
		return nil, nil
	}
	return []string{found.Name}, nil
}

// RemoveHomes removes them. One that a container has is in use.
func (b *Boundary) RemoveHomes(ctx context.Context, id screen.ID) error {
	names, err := b.Homes(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit) // a home can be large
	defer cancel()
	for _, name := range names {
		if err := b.api.VolumeRemove(ctx, name, false); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove home %s: %w", name, b.explain(err))
		}
	}
	return nil
}
