// SPDX-License-Identifier: MPL-2.0

package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// What a desktop hands over is an address, or the path of a file.
func TestAddressOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b#.html")
	must(t, os.WriteFile(file, nil, 0o600))
	for word, want := range map[string]string{
		"https://a/b": "https://a/b", "about:blank": "about:blank", file: "file://" + filepath.Dir(file) + "/a%20b%23.html", "no such file": "no such file",
	} {
		if got := addressOf(word); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// Programs of the desktop say anything; what is no request is refused, and no error repeats
// it.
func FuzzReadOpen(f *testing.F) {
	f.Add(string(dialhome.Encode(dialhome.BrowserOpen{URL: "https://a/"})) + "\n")
	f.Add("{\"url\":\"CANARY\"")
	f.Add("CANARY\n")
	f.Add(strings.Repeat("x", 2*maxOpen) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		request, err := readOpen(strings.NewReader(text))
		if err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("the error repeats what was said: %v", err)
		}
		if len(request.URL) > 3*maxOpen { // a byte that is no text becomes three
			t.Errorf("an address of %d bytes", len(request.URL))
		}
	})
}
