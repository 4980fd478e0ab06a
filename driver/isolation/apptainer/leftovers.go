// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
)

var _ isolation.ImageSweeper = (*Boundary)(nil)

// SweepImages removes files that were made of registry images, and half-made ones of a
// driver that died. What a reference means on this node by now stays: its next start would
// fetch it again.
func (b *Boundary) SweepImages(ctx context.Context, keep func(reference string) bool, grace time.Duration) ([]string, error) {
	images, err := b.openImages()
	if err != nil {
		return nil, fmt.Errorf("sweep images: %w", err)
	}
	defer images.Close()
	entries, err := fs.ReadDir(images.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("sweep images: %w", err)
	}
	meant := map[string]bool{}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink != 0 {
			if target, err := images.Readlink(entry.Name()); err == nil {
				meant[filepath.Base(target)] = true
			}
		}
	}
	var removed []string
	var errs []error
	for _, entry := range entries {
		name := entry.Name()
		info, err := entry.Info()
		if err != nil || ctx.Err() != nil || time.Since(info.ModTime()) < grace || !isOurs(entry) {
			continue
		}
		if meant[name] || keep(filepath.Join(b.imagesDir(), name)) {
			continue
		}
		if err := images.RemoveAll(name); err != nil {
			errs = append(errs, fmt.Errorf("sweep images: %w", err))
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(errs...)
}

// isOurs knows the names of keep and fetch: whatever else lies there is somebody's.
func isOurs(entry fs.DirEntry) bool {
	name := entry.Name()
	switch {
	case entry.Type().IsRegular():
		return strings.HasSuffix(name, ".sif") || strings.HasPrefix(name, ".new-")
	case entry.IsDir():
		return strings.HasPrefix(name, "pull-")
	}
	return false
}
