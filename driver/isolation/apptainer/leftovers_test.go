// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Of what was fetched goes what nobody keeps, no reference means and is old; nothing else.
func TestSweepImages(t *testing.T) {
	b := New(Options{StateDir: folder(t, 0o711)})
	images, err := b.openImages()
	must(t, err)
	defer images.Close()
	old := time.Now().Add(-time.Hour)
	file := func(name string, at time.Time) {
		t.Helper()
		must(t, images.WriteFile(name, []byte("SIF"), 0o644))
		must(t, images.Chtimes(name, at, at))
	}
	file("a-1.sif", old)
	file("a-2.sif", old)
	file("a-3.sif", old)
	file("a-4.sif", time.Now())
	file(".new-0123", old)
	file("README", old)
	must(t, images.Symlink("a-3.sif", "a"))
	must(t, images.Mkdir("pull-0123", 0o711))
	must(t, images.WriteFile("pull-0123/image.sif", nil, 0o644))
	must(t, images.Chtimes("pull-0123", old, old))
	must(t, images.Mkdir("theirs", 0o711))
	must(t, images.Chtimes("theirs", old, old))
	kept := filepath.Join(b.imagesDir(), "a-2.sif") // a profile is decided for it
	removed, err := b.SweepImages(t.Context(), func(reference string) bool { return reference == kept }, time.Minute)
	must(t, err)
	slices.Sort(removed)
	if want := "[.new-0123 a-1.sif pull-0123]"; fmt.Sprint(removed) != want {
		t.Errorf("removed %v, want %s", removed, want)
	}
	var left []string
	entries, err := os.ReadDir(b.imagesDir())
	must(t, err)
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := "[README a a-2.sif a-3.sif a-4.sif theirs]"; fmt.Sprint(left) != want {
		t.Errorf("left %v, want %s", left, want)
	}
}
