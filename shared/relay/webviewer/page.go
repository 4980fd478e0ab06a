// SPDX-License-Identifier: MPL-2.0

// Package webviewer is the page on which a person sees a screen, takes it over and hands
// it back. It is one document around noVNC, which `make page` builds into this package;
// the WebSocket beside it is package relay's.
package webviewer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// page is the document as it was built.
type page struct {
	compressed []byte
	policy     string
}

var built = sync.OnceValue(func() *page {
	compressed, err := dist.ReadFile("dist/page.html.gz")
	if err != nil {
		return nil
	}
	policy, err := dist.ReadFile("dist/policy")
	if err != nil {
		return nil
	}
	return &page{compressed, strings.TrimSpace(string(policy))}
})

// Built reports whether the page is part of this program: it is not where it was compiled
// without `make page`.
func Built() bool { return built() != nil }

// headers keep the page to itself (threats.md X32): nothing is loaded from elsewhere, no
// page frames it or keeps hold of its window, and no address of it is passed on.
var headers = map[string]string{
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// nothing is the policy of what is not the page.
const nothing = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Protect sets what every answer beside the page's carries too.
func Protect(h http.Header) {
	for name, value := range headers {
		h.Set(name, value)
	}
	h.Set("Content-Security-Policy", nothing)
}

// Handler serves the page at /, and nothing elsewhere. Where it was not built it says so.
// The page opens its WebSocket at the relative address relay.PathView.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Protect(w.Header())
		p := built()
		switch {
		case r.URL.Path != "/":
			http.Error(w, "There is nothing here.", http.StatusNotFound)
		case p == nil:
			http.Error(w, "This program was built without the viewer's page. Build it with `make page build`, or use `botscreen view --vnc`.", http.StatusNotImplemented)
		default:
			p.serve(w, r)
		}
	})
}

func (p *page) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	body := p.compressed
	if acceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
	} else {
		plain, err := p.plain()
		if err != nil {
			http.Error(w, "The viewer's page in this program is damaged.", http.StatusInternalServerError)
			return
		}
		body = plain
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the reader left when this fails
	}
}

func (p *page) plain() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p.compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// acceptsGzip reads Accept-Encoding (RFC 9110 section 12.5.3) as far as it matters here:
// a quality of zero refuses, any other is as good as the next.
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for choice := range strings.SplitSeq(line, ",") {
			coding, quality, _ := strings.Cut(choice, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(quality, " ", ""), "q="), 64)
				return err != nil || q > 0
			}
		}
	}
	return false
}
