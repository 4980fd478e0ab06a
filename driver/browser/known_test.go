// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// A version that the node knows is not asked for again, as long as the answer is of this
// file and not old.
func TestKnownVersion(t *testing.T) {
	path := script(t, filepath.Join(t.TempDir(), "chromium"), "echo Chromium 2.0")
	file, err := Identify(path)
	must(t, err)
	good := screen.KnownVersion{Path: path, Says: "Chromium 1.5 built", File: file, Asked: time.Now()}
	other, old, nonsense, elsewhere := good, good, good, good
	other.File.Inode++
	old.Asked = old.Asked.Add(-2 * RememberFor)
	nonsense.Says = "HeadlessChrome 1.5"
	elsewhere.Path += "-browser"
	for name, test := range map[string]struct {
		known []screen.KnownVersion
		want  string
	}{
		"nothing is known": {nil, "Chromium 2.0"},
		"this one":         {[]screen.KnownVersion{elsewhere, good}, "Chromium 1.5"},
		"another file":     {[]screen.KnownVersion{other}, "Chromium 2.0"},
		"an old answer":    {[]screen.KnownVersion{old}, "Chromium 2.0"},
		"no answer":        {[]screen.KnownVersion{nonsense}, "Chromium 2.0"},
		"another path":     {[]screen.KnownVersion{elsewhere}, "Chromium 2.0"},
	} {
		found, err := judge(t.Context(), Options{Starter: plain{}, Known: test.known}, path, nil)
		if err != nil || found.Version.String() != test.want || found.Recalled != (test.want != "Chromium 2.0") {
			t.Errorf("%s: %+v, %v, want %s", name, found, err, test.want)
		}
	}
}

// W4: behind a wrapper a newer browser may have come. Before a profile is refused for its
// sake, the browser is asked.
func TestW4KnownVersionIsAskedAgain(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, lastVersionFile), []byte("3.0"), 0o600))
	for answer, accepted := range map[string]bool{"Chromium 3.0": true, "Chromium 2.5": false, "nothing": false} {
		path := script(t, filepath.Join(t.TempDir(), "chromium"), "echo "+answer)
		b := New(Options{Starter: plain{}})
		err := b.checkVersion(t.Context(), Found{Executable: path, Version: Version{"Chromium", Number{2, 0}}, Recalled: true}, dir)
		if (err == nil) != accepted {
			t.Errorf("%s: %v", answer, err)
		}
		if accepted && b.State().Found.Version.String() != answer {
			t.Errorf("the state says %s, want %s", b.State().Found.Version, answer)
		}
	}
	var older *OlderError
	if err := New(Options{}).checkVersion(t.Context(), Found{Version: Version{"Chromium", Number{2, 0}}}, dir); !errors.As(err, &older) {
		t.Errorf("one that has said so itself: %v", err)
	}
}
