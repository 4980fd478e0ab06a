// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// S13: a program's path is one argument of an Exec key, whatever it holds (Desktop Entry
// Specification 1.5, "The Exec key").
func TestS13Exec(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/open":  `"/usr/bin/open"`,
		"/a b/open":      `"/a b/open"`,
		`/a"b`:           `"/a\\"b"`,
		"/a`b":           "\"/a\\\\`b\"",
		"/a$b":           `"/a\\$b"`,
		`/a\b`:           `"/a\\\\b"`,
		"/100%/u":        `"/100%%/u"`,
		"/it's;fine&<>|": `"/it's;fine&<>|"`,
	} {
		if got := quoteExec(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if back := unquoteExec(t, quoteExec(path)); back != path {
			t.Errorf("%s is read as %s", path, back)
		}
	}
}

func FuzzQuoteExec(f *testing.F) {
	f.Add(`/a "b" $c\d%e`)
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsAny(path, "\n\x00") {
			return // no path of an XDir
		}
		if back := unquoteExec(t, quoteExec(path)); back != path {
			t.Errorf("%q is read as %q", path, back)
		}
	})
}

// unquoteExec reads a key of one quoted argument as launchers do: the string's escapes
// first, then the quoting, then the field codes.
func unquoteExec(t *testing.T, value string) string {
	t.Helper()
	text := strings.ReplaceAll(value, `\\`, `\`)
	text, ok := strings.CutPrefix(text, `"`)
	text, end := strings.CutSuffix(text, `"`)
	if !ok || !end {
		t.Fatalf("%s is not quoted", value)
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
			if i == len(text) || !strings.ContainsRune("\"`$\\", rune(text[i])) {
				t.Fatalf("%s has a stray backslash", value)
			}
		} else if strings.ContainsRune("\"`$", rune(text[i])) {
			t.Fatalf("%s has a bare %c", value, text[i])
		}
		b.WriteByte(text[i])
	}
	return strings.ReplaceAll(b.String(), "%%", "%")
}

// W1: our entry is what opens links, and stands in the place of those of browsers that would
// start with another profile; without an opener nothing is written.
func TestW1Entries(t *testing.T) {
	dir := t.TempDir()
	o := Options{XDir: filepath.Join(dir, "x"), ConfigHome: filepath.Join(dir, "config")}
	if err := o.plantOpener(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("without an opener there are %v", entries)
	}
	o.Opener = &Opener{Command: "/run/a b/open", Icon: "chromium"}
	for range 2 { // again at each start
		if err := o.plantOpener(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"x/share/applications/botscreen-browser.desktop":           "Exec=\"/run/a b/open\" %u\n",
		"x/share/applications/chromium.desktop":                    "NoDisplay=true\n",
		"x/share/xfce4/helpers/botscreen-browser.desktop":          "X-XFCE-CommandsWithParameter=\"/run/a b/open\" \"%s\";\n",
		"x/xdg/mimeapps.list":                                      "x-scheme-handler/https=botscreen-browser.desktop\n",
		"x/xdg/xfce4/helpers.rc":                                   "WebBrowser=botscreen-browser\n",
		"config/xfce4/panel/launcher-11/botscreen-browser.desktop": "Icon=chromium\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: %q", name, err, text)
		}
	}
	for _, look := range []Look{LookLean, LookFull} {
		o.Look, o.WidthPx, o.HeightPx = look, 800, 600
		files, err := seeds(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.Contains(string(f.Content), "@") {
				t.Errorf("%s: %s has a placeholder left", look, f.Path)
			}
		}
	}
}

// W1, S5: the desktop's programs find the opener; what runs while the X server can still be
// reached does not read what they may write.
func TestOpenerEnvironment(t *testing.T) {
	o := Options{XDir: "/run/x", Home: "/home/bot", Env: []string{"BROWSER=/usr/bin/other"}, Opener: &Opener{Command: "/run/x/open"}}
	env := strings.Join(environment(o), "\n") + "\n"
	for _, want := range []string{"BROWSER=/run/x/open\n", "XDG_DATA_DIRS=/run/x/share:/usr/local/share:/usr/share\n", "XDG_CONFIG_DIRS=/run/x/xdg:/etc/xdg\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(env, "/usr/bin/other") {
		t.Error("another browser of the job's is still named")
	}
	if server := strings.Join(serverEnvironment(o), "\n"); strings.Contains(server, "/run/x/share") || strings.Contains(server, "/run/x/xdg") {
		t.Errorf("the server's environment is %s", server)
	}
	o.XDir = "/run/a:b"
	if env := strings.Join(environment(o), "\n"); strings.Contains(env, "a:b/share") {
		t.Error("a path with a colon stands in a list of paths")
	}
}
