// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/driver/browser"
)

// An executable is asked once, and again when its file is another one or time has passed.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "chromium")
		replace := func() {
			t.Helper()
			if err := os.WriteFile(path+".new", nil, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		var m Memory
		asked := 0
		expect := func(what string, want int, during func() error) {
			t.Helper()
			_, err := m.Ask(path, func() (string, error) {
				asked++
				return "Chromium 1.0", during()
			})
			if asked != want || err != nil {
				t.Errorf("%s: asked %d times, %v, want %d", what, asked, err, want)
			}
		}
		quiet := func() error { return nil }
		expect("no file", 1, quiet)
		replace()
		expect("its first time", 2, quiet)
		expect("again", 2, quiet)
		if all := m.All(); len(all) != 1 || all[0].Path != path || all[0].Says != "Chromium 1.0" {
			t.Errorf("known: %+v", all)
		}
		replace()
		expect("another file, replaced meanwhile", 3, func() error { replace(); return nil })
		expect("after that", 4, quiet)
		expect("again", 4, quiet)
		time.Sleep(browser.RememberFor)
		expect("much later", 5, quiet)
		time.Sleep(browser.RememberFor)
		busy := func() error { return fmt.Errorf("ask: %w", errNoAnswer) }
		expect("no answer on a busy node", 6, busy)
		expect("an answer again", 7, quiet)
		replace()
		if _, err := m.Ask(path, func() (string, error) { return "", busy() }); !errors.Is(err, errNoAnswer) {
			t.Errorf("another file that does not answer: %v", err)
		}
		no := errors.New("no")
		if _, err := m.Ask(path, func() (string, error) { return "", no }); !errors.Is(err, no) {
			t.Errorf("a refusal: %v", err)
		}
		expect("after a refusal", 8, quiet)
	})
	var none *Memory
	if says, err := none.Ask("/nonexistent", func() (string, error) { return "it", nil }); says != "it" || err != nil {
		t.Errorf("without a memory: %q, %v", says, err)
	}
}

// The browser of the system is not asked at each look.
func TestBrowserIsRemembered(t *testing.T) {
	dir := rootDir(t)
	script(t, filepath.Join(dir, "chromium"), "echo Chromium 128.0.6613.84")
	h := Host{Path: dir, Versions: &Memory{}}
	want, err := h.Browser(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	known := h.Versions.All()
	got, err := h.Browser(context.Background())
	if err != nil || got != want || len(known) != 1 || h.Versions.All()[0].Asked != known[0].Asked {
		t.Errorf("got %q, %v, then %v", got, err, h.Versions.All())
	}
}
