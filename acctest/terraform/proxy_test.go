// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"crypto/tls"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// proxy stands between the provider and the agent. It counts, and its hooks may answer in
// the agent's place, do something first, or change what comes back.
type proxy struct {
	*httptest.Server
	mu    sync.Mutex // guards what follows
	count map[string]int
	// before sees a request first; true: it has answered. It runs for several requests at
	// once, so what it keeps is guarded; requests it has only to count are in counts.
	before func(w http.ResponseWriter, r *http.Request) bool
	// after sees an answer before the provider does.
	after func(*http.Response) error
}

func newProxy(t *testing.T, agent string, config *tls.Config) *proxy {
	t.Helper()
	target, err := url.Parse("http://" + agent)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{count: map[string]int{}}
	back := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(resp *http.Response) error { return p.changed(resp) },
		FlushInterval:  -1,
		ErrorLog:       log.New(quiet{}, "", 0),
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.count[kindOf(r)]++
		before := p.before
		p.mu.Unlock()
		if before == nil || !before(w, r) {
			back.ServeHTTP(w, r)
		}
	}))
	p.Config.ErrorLog = log.New(quiet{}, "", 0)
	if config == nil {
		p.Start()
	} else {
		p.TLS = config
		p.StartTLS()
	}
	t.Cleanup(p.Close)
	return p
}

type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }

func (p *proxy) changed(resp *http.Response) error {
	p.mu.Lock()
	after := p.after
	p.mu.Unlock()
	if after == nil {
		return nil
	}
	return after(resp)
}

// kindOf is a request without the names in it: "GET /v1/var".
func kindOf(r *http.Request) string {
	parts := strings.SplitN(r.URL.Path, "/", 4)
	kind := r.Method + " " + strings.Join(parts[:min(3, len(parts))], "/")
	if i := strings.LastIndexByte(r.URL.Path, '/'); strings.HasPrefix(r.URL.Path, "/v1/job/") && strings.Count(r.URL.Path, "/") > 3 {
		kind += "/*" + r.URL.Path[i:]
	}
	return kind
}

// hook sets what sees requests; nil: nothing.
func (p *proxy) hook(before func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

// plainly changes answers that are not compressed, which the provider would ask for.
func (p *proxy) plainly(after func(*http.Response) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = after
	p.before = nil
	if after != nil {
		p.before = func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Accept-Encoding")
			r.Header.Set("Accept-Encoding", "identity")
			return false
		}
	}
}

// once has f see the first request that it is for, and none after.
func (p *proxy) once(is func(*http.Request) bool, f func(w http.ResponseWriter, r *http.Request) bool) {
	var done sync.Once
	p.hook(func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if is(r) {
			done.Do(func() { answered = f(w, r) })
		}
		return answered
	})
}

// counts gives the requests by kind since the last call.
func (p *proxy) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.count
	p.count = map[string]int{}
	return out
}

func putsVariable(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/var/")
}

func putsJob(r *http.Request) bool {
	return r.Method == http.MethodPut && (r.URL.Path == "/v1/jobs" || strings.HasPrefix(r.URL.Path, "/v1/job/") && !strings.HasSuffix(r.URL.Path, "/plan"))
}

func deletesVariable(r *http.Request) bool {
	return r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/v1/var/")
}
