// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// page tries everything that a page may send without asking, and then with the
// token, which needs asking first.
const page = `<!doctype html><script>
const target = %q, job = %s, token = %q;
const tries = [
  () => fetch(target + "/v1/jobs", {method: "POST", mode: "no-cors", body: job}),
  () => fetch(target + "/v1/jobs", {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: job}),
  () => fetch(target + "/v1/jobs", {method: "POST", headers: {"X-Nomad-Token": token}, body: job}),
  () => fetch(target + "/v1/jobs?pretty", {credentials: "include", mode: "no-cors"}),
  () => new Promise(done => { const s = new WebSocket(target.replace("http", "ws") + "/v1/client/allocation/x/exec?ws_handshake=true"); s.onclose = s.onerror = done }),
];
(async () => { for (const t of tries) { try { await t() } catch (e) {} } await fetch("/done") })();
</script>`

// X9: a page of another site, in a real browser, starts nothing: every request of it
// is answered with 403.
func TestX9PageInABrowser(t *testing.T) {
	browser, err := findBrowser()
	if err != nil {
		t.Skip("no headless browser: " + err.Error())
	}
	a := devagenttest.Start(t)
	job, err := json.Marshal(map[string]any{"Job": parse(t, a.Client, shell("evil", "exec sleep 1000", ""))})
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(job))
	if err != nil {
		t.Fatal(err)
	}
	// A proxy tells what the agent answered, which the page cannot see.
	var mu sync.Mutex
	statuses := map[string][]int{}
	target, err := url.Parse("http://" + a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		mu.Lock()
		defer mu.Unlock()
		statuses[r.Request.Method+" "+r.Request.URL.Path] = append(statuses[r.Request.Method+" "+r.Request.URL.Path], r.StatusCode)
		return nil
	}
	agent := httptest.NewServer(proxy)
	defer agent.Close()

	done := make(chan struct{}, 1)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			done <- struct{}{}
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, page, agent.URL, quoted, tokenOf(t, a))
	}))
	defer evil.Close()
	for _, site := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		cmd := exec.Command(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir="+t.TempDir(), site)
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		select {
		case <-done:
		case <-time.After(60 * time.Second):
			t.Error("the page did not finish")
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(statuses["POST /v1/jobs"]) < 4 || len(statuses["OPTIONS /v1/jobs"]) == 0 {
		t.Errorf("the page sent less than it should: %v", statuses)
	}
	for request, all := range statuses {
		for _, status := range all {
			if status != http.StatusForbidden {
				t.Errorf("%s: %d", request, status)
			}
		}
	}
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

func findBrowser() (string, error) {
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		var path string
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}
