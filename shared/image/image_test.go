// SPDX-License-Identifier: MPL-2.0

package image

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TFM-05: tag and digest together, a registry's port, transports and files.
func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		kind Kind
		ref  Reference
		bad  string
	}{
		"desk:1.4":                        {Docker, Reference{Repository: "desk", Tag: "1.4"}, ""},
		"desk@" + digest:                  {Docker, Reference{Repository: "desk", Digest: digest}, ""},
		"desk:1.4@" + digest:              {Docker, Reference{Repository: "desk", Tag: "1.4", Digest: digest}, ""},
		"registry.example:5000/team/desk": {Docker, Reference{Registry: "registry.example:5000", Repository: "team/desk"}, ""},
		"localhost/desk":                  {Docker, Reference{Registry: "localhost", Repository: "desk"}, ""},
		"team/desk":                       {Docker, Reference{Repository: "team/desk"}, ""},
		"oras://registry.example:5000/team/desk:1.4": {Apptainer, Reference{Scheme: "oras", Registry: "registry.example:5000", Repository: "team/desk", Tag: "1.4"}, ""},
		"/images/desk.sif":                           {Apptainer, Reference{File: "/images/desk.sif"}, ""},
		"/images/other.sif@" + digest:                {Apptainer, Reference{File: "/images/other.sif", Digest: digest}, ""},
		"":                                           {Docker, Reference{}, "1 to 512 bytes"},
		"Desk:1.4":                                   {Docker, Reference{}, "lower case"},
		"desk@sha256:xyz":                            {Docker, Reference{}, "64 hex digits"},
		"desk@sha512:" + strings.Repeat("a", 128): {Docker, Reference{}, "sha256"},
		"oras://x/desk":         {Docker, Reference{}, "only apptainer"},
		"/images/../etc/shadow": {Apptainer, Reference{}, "clean absolute path"},
		"/images/desk":          {Docker, Reference{}, "only apptainer"},
		"desk:1.4 --privileged": {Docker, Reference{}, "no image reference"},
	} {
		got, err := Parse(want.kind, text)
		switch {
		case want.bad == "" && (err != nil || got != want.ref):
			t.Errorf("%q: %+v, %v", text, got, err)
		case want.bad != "" && (err == nil || !strings.Contains(err.Error(), want.bad)):
			t.Errorf("%q: error %v, want %q", text, err, want.bad)
		}
	}
}

// FuzzParse: what is accepted can be pinned, and the pinned form reads as the same image.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"desk", "a.b:5000/c/d:e@" + digest, "oras://x.y/z", "/a/b.sif", "-x", "a b", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []Kind{Docker, Apptainer} {
			r, err := Parse(kind, text)
			if err != nil {
				continue
			}
			again, err := Parse(kind, r.Pinned(digest))
			if err != nil || again.Name() != r.Name() || again.Digest != digest {
				t.Fatalf("%q: %+v is pinned as %q: %+v, %v", text, r, r.Pinned(digest), again, err)
			}
		}
	})
}

func TestDigestOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "desk.sif")
	if err := os.WriteFile(path, []byte("an image"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Digest(t.Context(), Registry, Reference{File: path})
	if err != nil || got != "sha256:a5df3fde7b200c3fa2791144c7e05c5c2bced4c6ad863d3a4cf76c972c1712f9" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := Digest(t.Context(), Registry, Reference{File: path + ".none"}); err == nil {
		t.Error("a file that is not there has a digest")
	}
}

// An engine's answer: the digest of the repository that was asked for, else the id.
func TestDigestOfAnEngine(t *testing.T) {
	id := "sha256:" + strings.Repeat("1", 64)
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/images/team/desk:1/json" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+strings.TrimPrefix(server.URL, "http://"))
	for _, tc := range []struct{ answer, want string }{
		{`{"Id":"` + id + `","RepoDigests":["other@` + id + `","team/desk@` + digest + `"]}`, digest},
		{`{"Id":"` + id + `","RepoDigests":[]}`, id},
		{`{"Id":"nothing"}`, ""},
		{`not JSON`, ""},
	} {
		answer = tc.answer
		got, err := Digest(t.Context(), Engine, Reference{Repository: "team/desk", Tag: "1"})
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", tc.answer, got, err)
		}
	}
	if _, err := Digest(t.Context(), Engine, Reference{Repository: "nobody"}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an image that is not there: %v", err)
	}
}
