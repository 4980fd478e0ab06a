// SPDX-License-Identifier: MPL-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Binary is an executable of a plugin directory.
type Binary struct {
	// Name is the file's, by which an agent's `plugin "<name>"` block refers to it.
	Name string
	Path string
}

// Skipped is an entry of a plugin directory that is no plugin.
type Skipped struct {
	Path   string
	Reason string
}

// Discover lists what may be a plugin: every executable file of the directory itself, symbolic links
// followed. A directory that does not exist has none; an entry that cannot be examined is an error.
func Discover(dir string) ([]Binary, []Skipped, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read plugin directory: %w", err)
	}
	var (
		found   []Binary
		skipped []Skipped
	)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("read plugin directory: %w", err)
		case info.IsDir():
			skipped = append(skipped, Skipped{path, "a directory"})
		case info.Mode()&0o111 == 0:
			skipped = append(skipped, Skipped{path, "not executable"})
		default:
			found = append(found, Binary{Name: strings.TrimSuffix(entry.Name(), ".exe"), Path: path})
		}
	}
	return found, skipped, nil
}
