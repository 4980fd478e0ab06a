// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// request is one HTTP call whose headers a test spoils.
type request struct{ header map[string]string }

func (r *request) post(t *testing.T, url, body string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.header {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// page opens a web page of another origin in a real browser, which posts a job the only
// ways a page can without asking first.
func page(t *testing.T, a *agent) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Log("chromium is not on PATH: the page was not tried")
		return
	}
	posted := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<script>
const body = JSON.stringify({Job: {ID: "page", Name: "page", Type: "batch", TaskGroups: []}});
(async () => {
	for (const mode of ["no-cors", "cors"]) {
		try { await fetch(%q, {method: "POST", mode, headers: {"Content-Type": "text/plain"}, body}); } catch (e) {}
	}
	navigator.sendBeacon(%q, body);
	await fetch("/done");
})();
</script>`, a.addr+"/v1/jobs", a.addr+"/v1/jobs")
	})
	done := false
	mux.HandleFunc("GET /done", func(http.ResponseWriter, *http.Request) {
		if !done {
			done = true
			close(posted)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+browserDir(t),
		"--virtual-time-budget=10000", "--dump-dom", server.URL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	select {
	case <-posted:
	case <-time.After(60 * time.Second):
		t.Fatal("the page did not run in the browser")
	}
	noJob(t, a, "page")
}
