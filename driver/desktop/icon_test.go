// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// S4, W1: a panel from before there was an icon gets it once, whichever look it has; what a
// person has taken off it stays off, and what they changed beside it stays.
func TestS4OldPanelGetsTheIcon(t *testing.T) {
	for _, look := range []Look{LookLean, LookFull} {
		t.Run(string(look), func(t *testing.T) {
			o := Options{ConfigHome: t.TempDir(), Look: look, WidthPx: 800, HeightPx: 600}
			panel := filepath.Join(o.ConfigHome, panelSettings)
			seed := func() {
				t.Helper()
				files, err := seeds(o)
				if err == nil {
					err = plant(o.ConfigHome, files)
				}
				if err = errors.Join(err, o.giveIcon()); err != nil {
					t.Fatal(err)
				}
			}
			edit := func(old, new string) {
				t.Helper()
				text := readText(t, panel)
				if !strings.Contains(text, old) {
					t.Fatalf("%q is not in %s", old, text)
				}
				if err := os.WriteFile(panel, []byte(strings.ReplaceAll(text, old, new)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			seed() // without a browser
			if strings.Contains(readText(t, panel), iconName) {
				t.Fatal("without an opener there is an icon")
			}
			edit(`type="uint" value="28"`, `type="uint" value="33"`) // a person wants it larger
			o.Opener = &Opener{Command: "/run/x/open", Icon: "chromium"}
			seed()
			text := readText(t, panel)
			if strings.Count(text, iconName) != 1 || strings.Count(text, iconID) != 1 || !strings.Contains(text, openerEntry) || !strings.Contains(text, `value="33"`) {
				t.Errorf("the panel is %s", text)
			}
			wellFormed(t, text)
			edit(iconPlugin, "")
			edit(iconID, "")
			seed()
			if text := readText(t, panel); strings.Contains(text, iconName) {
				t.Errorf("taken off, the icon is back: %s", text)
			}
		})
	}
	t.Run("new", func(t *testing.T) {
		o := Options{ConfigHome: t.TempDir(), Look: LookLean, WidthPx: 800, HeightPx: 600, Opener: &Opener{Command: "/run/x/open", Icon: "chromium"}}
		files, err := seeds(o)
		if err == nil {
			err = plant(o.ConfigHome, files)
		}
		if err = errors.Join(err, o.giveIcon()); err != nil {
			t.Fatal(err)
		}
		if text := readText(t, filepath.Join(o.ConfigHome, panelSettings)); strings.Count(text, iconID) != 1 {
			t.Errorf("a new panel has %s", text)
		}
	})
	t.Run("elsewhere", func(t *testing.T) { // X6: somebody keeps the settings in another place
		o := Options{ConfigHome: t.TempDir(), Opener: &Opener{Command: "/run/x/open"}}
		outside := filepath.Join(t.TempDir(), "panel.xml")
		old, _ := settings.ReadFile("settings/lean/xfce4-panel.xml")
		if err := errors.Join(os.WriteFile(outside, old, 0o600), os.MkdirAll(filepath.Join(o.ConfigHome, channelDir), 0o700), os.Symlink(outside, filepath.Join(o.ConfigHome, panelSettings))); err != nil {
			t.Fatal(err)
		}
		if err := o.giveIcon(); err != nil || readText(t, outside) != string(old) {
			t.Errorf("%v, the file is %s", err, readText(t, outside))
		}
	})
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
}

// A home's files are anybody's who ran there: whatever they hold, what is written is
// settings with one icon more, or nothing.
func FuzzWithIcon(f *testing.F) {
	f.Add(`<channel name="p"><property name="panels"><property name="panel-1"><property name="plugin-ids"><value/><value/></property></property></property><property name="plugins"><property name="plugin-1"/></property></channel>`)
	f.Add(`<channel name="c"><property name="plugins"></property><property name="plugin-ids"><value/></property></channel>`)
	f.Add(`<a><b></a>`)
	f.Add("<!-- name=\"plugin-ids\" --><c name='x'><property name='plugin-ids'><value/></property><property name='plugins'/></c>")
	f.Fuzz(func(t *testing.T, text string) {
		with, ok := withIcon(text)
		if !ok {
			return
		}
		wellFormed(t, with)
		if strings.Count(with, iconID) != strings.Count(text, iconID)+1 || strings.Count(with, iconPlugin) != strings.Count(text, iconPlugin)+1 {
			t.Errorf("%q became %q", text, with)
		}
		if _, again := withIcon(with); again {
			t.Errorf("%q has room for another icon", with)
		}
	})
}
