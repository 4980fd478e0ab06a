// SPDX-License-Identifier: MPL-2.0

package webviewer

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// The tests run where the page was built; a release without it would be a release
// without a viewer.
func TestPageIsBuilt(t *testing.T) {
	if !Built() {
		t.Fatal("the viewer's page is missing: run `make page`")
	}
}

// X32: nothing but the page's own script and style runs, by their hashes.
func TestX32PolicyNamesThePageAlone(t *testing.T) {
	w := get(t, "/", nil)
	body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "" {
		t.Fatalf("status %d, encoding %q", w.Code, w.Header().Get("Content-Encoding"))
	}
	for element, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		found := regexp.MustCompile(`(?s)<`+element+`[^>]*>(.*?)</`+element+`>`).FindAllStringSubmatch(body, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements %s, want one", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, want+";") {
			t.Errorf("policy %q, want it to allow exactly %s", policy, want)
		}
	}
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'", "connect-src 'self'", "img-src data:"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q is unsafe", policy)
	}
	for name, want := range headers {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if handler := regexp.MustCompile(`<[^>]+\son[a-z]+=|<[^>]+\sstyle=|javascript:`).FindString(strings.Split(body, "<script")[0]); handler != "" {
		t.Errorf("the document has %q, which its policy would refuse", handler)
	}
}

// X3: the page says what a takeover does not hide, before and during it.
func TestX3PageSaysWhatATakeoverDoesNotHide(t *testing.T) {
	body := strings.Split(get(t, "/", nil).Body.String(), "<script")[0]
	if n := strings.Count(body, "Programs on this desktop can read what you type."); n != 2 {
		t.Errorf("the sentence stands there %d times, want 2: in the bar and where one takes over", n)
	}
	if strings.Contains(strings.ToLower(body), "private") {
		t.Error("the page calls something private")
	}
}

// X43: the page and nothing else; no directory, no version.
func TestX43OnlyThePage(t *testing.T) {
	for _, path := range []string{"/dist/", "/dist/policy", "/page.html", "/index.html", "//", "/..", "/%2e%2e/"} {
		w := get(t, path, nil)
		if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "policy") {
			t.Errorf("%s: status %d, %q", path, w.Code, w.Body)
		}
		if got := w.Header().Get("Content-Security-Policy"); got != nothing {
			t.Errorf("%s: policy %q", path, got)
		}
	}
}

func TestPageIsCompressedForWhoAsks(t *testing.T) {
	plain := get(t, "/", nil).Body.Len()
	for accept, want := range map[string]bool{
		"gzip": true, "br, GZIP;q=0.5": true, "deflate, gzip;q=1.0, *;q=0.5": true,
		"": false, "gzip;q=0": false, "gzip; q=0.000": false, "br": false, "gzippy": false,
	} {
		w := get(t, "/", http.Header{"Accept-Encoding": {accept}})
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want || got == (w.Body.Len() == plain) {
			t.Errorf("%q: compressed %t with %d of %d bytes, want %t", accept, got, w.Body.Len(), plain, want)
		}
	}
}
