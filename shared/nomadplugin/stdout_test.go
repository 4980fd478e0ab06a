// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Standard output belongs to the handshake. What the SDK printed there, a plugin could not take back.
func TestC26_nothing_is_printed(t *testing.T) {
	printing := regexp.MustCompile(`\b(fmt\.Print|print(ln)?\(|log\.(Print|Fatal|Panic))`)
	var seen int
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for n, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if printing.MatchString(code) {
				t.Errorf("%s:%d: %s", path, n+1, line)
			}
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Errorf("%d files, %v", seen, err)
	}
}
