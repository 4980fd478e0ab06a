// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/testkit/inside"
)

// exchange is a site whose page is one button for a file, and which has one to fetch.
type exchange struct {
	*httptest.Server
	shown chan struct{} // its page has come up; has room for more than there are
	given chan string   // "name: content" of what was chosen; the same
}

// newExchange serves it where the programs of a screen reach it.
func newExchange(t *testing.T, a *agent, profile string) *exchange {
	t.Helper()
	e := &exchange{shown: make(chan struct{}, 16), given: make(chan string, 16)}
	e.Server = inside.Serve(t, sessionOf(t, a, profile).pid, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/shown":
			e.shown <- struct{}{}
		case "/give":
			body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
			e.given <- r.URL.Query().Get("name") + ": " + string(body)
		case "/report":
			w.Header().Set("Content-Disposition", `attachment; filename="report.txt"`)
			_, _ = io.WriteString(w, "the report")
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, `<!doctype html><title>Exchange</title><body style="margin:0">
				<input id="file" type="file" style="position:fixed;inset:0;width:100vw;height:100vh">
				<script>
				file.onchange = async () => fetch("/give?name=" + encodeURIComponent(file.files[0].name), {method: "POST", body: await file.files[0].text()});
				requestAnimationFrame(() => requestAnimationFrame(() => fetch("/shown", {method: "POST"})));
				</script>`)
		}
	}))
	return e
}

func awaitFrom[T any](t *testing.T, what string, from chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(actionLimit):
		t.Fatalf("there was never %s", what)
	}
	return got
}

// acts does what the agent of a screen does with keyboard and pointer.
func (a *agent) acts(t *testing.T, profile string, actions ...action.Action) {
	t.Helper()
	bot := a.asAgent(t, profile)
	lease, err := bot.Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bot.Input(t.Context(), control.InputRequest{Epoch: lease.Epoch, Actions: actions}); err != nil {
		t.Fatal(err)
	}
}

// fileDialogs: a page's dialog for files opens in the home, what is chosen there by keyboard
// reaches the page, and a download lands in the home.
func fileDialogs(t *testing.T, a *agent) {
	a.must(t, "run", a.browserJob(t, "clerk"))
	defer func() { a.must(t, "stop", "clerk") }()
	site := newExchange(t, a, "clerk")
	a.must(t, "exec", "-T", "clerk", "sh", "-c", `printf 'from the home' > "$HOME/upload.txt"`)

	a.must(t, "browser", "open", "clerk", site.URL+"/")
	awaitFrom(t, "the page", site.shown)
	a.acts(t, "clerk", action.Click{Point: action.Point{X: 400, Y: 400}})
	a.windowOn(t, "clerk", "Open File")
	// Return cancels this dialog of Chromium 156 on Debian 12, on any X server.
	a.acts(t, "clerk", action.Key{Keys: "ctrl+l"}, action.Type{Text: "upload.txt"}, action.Key{Keys: "alt+o"})
	if got := awaitFrom(t, "a file for the page", site.given); got != "upload.txt: from the home" {
		t.Errorf("the page was given %q", got)
	}

	a.must(t, "browser", "open", "clerk", site.URL+"/report")
	a.eventually("the download", func() bool {
		r := a.botscreen(t, "exec", "-T", "clerk", "sh", "-c", `cat "$HOME/Downloads/report.txt"`)
		return r.code == 0 && strings.TrimSpace(r.stdout) == "the report"
	})
}

// profileRemoved: what a bot has on its node goes when it is asked for, once its screen is
// not there, and what it had is gone for the next one.
func profileRemoved(t *testing.T, a *agent) {
	path := a.job(t, "leaver")
	remove := func(args ...string) result {
		t.Helper()
		return a.botscreen(t, append([]string{"profile", "rm", "leaver", "--state-dir", filepath.Join(a.dir, "state"), "--run-dir", filepath.Join(a.dir, "run")}, args...)...)
	}
	home := filepath.Join(a.dir, "state", "data", "default", "leaver")
	a.must(t, "run", path)
	a.must(t, "exec", "-T", "leaver", "sh", "-c", `echo mine > "$HOME/mine"`)
	if r := remove("--yes"); r.code != 1 || !strings.Contains(r.stderr, "stop it first") {
		t.Errorf("with its screen there: %s", r)
	}
	a.must(t, "stop", "leaver")
	if r := remove(); r.code != 1 || !strings.Contains(r.stdout, home) || !strings.Contains(readFile(t, filepath.Join(home, "mine")), "mine") {
		t.Errorf("without --yes: %s", r)
	}
	if r := remove("--yes"); r.code != 0 || !strings.Contains(r.stdout, home) {
		t.Errorf("%s", r)
	}
	if _, err := os.Lstat(home); err == nil {
		t.Errorf("%s is left", home)
	}
	a.must(t, "run", path)
	if r := a.botscreen(t, "exec", "-T", "leaver", "sh", "-c", `cat "$HOME/mine"`); r.code == 0 {
		t.Errorf("the next screen has what was removed: %s", r)
	}
	a.must(t, "stop", "leaver")
}
