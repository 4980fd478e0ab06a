// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/testkit/inside"
)

// visits is a web site that tells which of its pages were asked for, with which cookies.
type visits struct {
	*httptest.Server
	seen chan string // "/path cookies"
}

// shownPath is an image of each page: who asks for it has the page, and its cookies.
const shownPath = "/shown/"

// newVisits serves it where the programs of a screen reach it.
func newVisits(t *testing.T, a *agent, profile string) *visits {
	t.Helper()
	v := &visits{seen: make(chan string, 64)}
	v.Server = inside.Serve(t, sessionOf(t, a, profile).pid, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if visit, shown := strings.CutPrefix(r.URL.Path, shownPath); shown {
			v.seen <- visit
			http.NotFound(w, r)
			return
		}
		switch r.URL.Path {
		case "/favicon.ico":
			http.NotFound(w, r)
			return
		case "/login":
			http.SetCookie(w, &http.Cookie{Name: "login", Value: "yes", Path: "/", MaxAge: 86400})
		}
		w.Header().Set("Content-Type", "text/html")
		visit := strings.TrimSpace(r.URL.Path + " " + r.Header.Get("Cookie"))
		_, _ = io.WriteString(w, "<title>page "+r.URL.Path+"</title><img src='"+shownPath+url.PathEscape(visit)+"'><body>"+strings.Repeat("word ", 500))
	}))
	return v
}

func (v *visits) await(t *testing.T, want string) {
	t.Helper()
	const limit = 60 * time.Second // a browser's first start on a busy machine
	select {
	case got := <-v.seen:
		if got != want {
			t.Fatalf("the browser asked for %q, want %q", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("the browser never asked for %q", want)
	}
}

// browsersOf are the browsers of one agent's screens, by the profile folder in their words.
func browsersOf(a *agent) []process {
	var found []process
	for _, p := range processes() {
		words := strings.Join(p.words, "\x00") + "\x00"
		if strings.Contains(words, "--user-data-dir="+a.dir+"/") && !strings.Contains(words, "--type=") {
			found = append(found, p)
		}
	}
	return found
}

// oneBrowser asks for the browser in every way there is, a program of the desktop first and
// then the command line, and the reverse: there is one process each time, no port, and its
// logins outlive a stop (W1, X17, BRW-12).
func oneBrowser(t *testing.T, a *agent) {
	path := a.browserJob(t, "surfer")
	a.must(t, "run", path)
	defer func() { a.must(t, "stop", "surfer") }()
	site := newVisits(t, a, "surfer")
	open := func(page string) { a.must(t, "browser", "open", "surfer", site.URL+page) }
	link := func(page string) { a.must(t, "exec", "-T", "--gui", "surfer", "xdg-open", site.URL+page) }
	preferred := func(page string) {
		a.must(t, "exec", "-T", "--gui", "surfer", "exo-open", "--launch", "WebBrowser", site.URL+page)
	}

	link("/login")
	site.await(t, "/login")
	first := a.oneBrowser(t)
	open("/opened")
	site.await(t, "/opened login=yes")
	preferred("/preferred")
	site.await(t, "/preferred login=yes")
	if now := a.oneBrowser(t); now.pid != first.pid {
		t.Errorf("pid %d, then pid %d", first.pid, now.pid)
	}
	a.noPorts(t)
	if b := a.status(t, "surfer").Supervisor.Browser; b == nil || !b.Running || b.Sandbox != "namespaces" {
		t.Errorf("the status says %+v", b)
	}

	a.must(t, "stop", "surfer")
	if left := browsersOf(a); len(left) > 0 {
		t.Fatalf("the stop left %v", left)
	}
	a.must(t, "run", path)
	site = newVisits(t, a, "surfer") // a sandbox has a network of its own
	open("/again")
	site.await(t, "/again login=yes")
	again := a.oneBrowser(t)
	link("/link")
	site.await(t, "/link login=yes")
	if now := a.oneBrowser(t); now.pid != again.pid {
		t.Errorf("pid %d, then pid %d", again.pid, now.pid)
	}
	a.noPorts(t)
	a.quitBrowser(t, "surfer")
	a.clickIcon(t, "surfer")
	a.oneBrowser(t)
}

// quitBrowser ends the browser well.
func (a *agent) quitBrowser(t *testing.T, profile string) {
	t.Helper()
	a.must(t, "browser", "close", profile)
	if left := browsersOf(a); len(left) > 0 {
		t.Errorf("closed, there are %v", left)
	}
}

// panelIcon is the browser's: beside the menu, where the look that jobs get by default has it.
var panelIcon = struct{ X, Y uint16 }{116, 14}

// clickIcon clicks the panel's icon.
func (a *agent) clickIcon(t *testing.T, profile string) {
	t.Helper()
	bot := a.asAgent(t, profile)
	lease, err := bot.Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = bot.Input(t.Context(), control.InputRequest{Epoch: lease.Epoch, Actions: action.List{action.Click{Point: action.Point{X: int(panelIcon.X), Y: int(panelIcon.Y)}}}})
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the browser of the icon", func() bool {
		b := a.status(t, profile).Supervisor.Browser
		return b != nil && b.Running
	})
}

// movedLogin takes a login from one bot to another, encrypted on its way.
func movedLogin(t *testing.T, a *agent) {
	for _, profile := range []string{"giver", "taker"} {
		a.must(t, "run", a.browserJob(t, profile))
		defer a.must(t, "stop", profile)
	}
	site, taken := newVisits(t, a, "giver"), newVisits(t, a, "taker")
	dir := t.TempDir()
	key, export := filepath.Join(dir, "key"), filepath.Join(dir, "export")
	recipient := strings.TrimSpace(a.must(t, "profile", "key", key))
	a.must(t, "browser", "open", "giver", site.URL+"/login")
	site.await(t, "/login")
	if r := a.botscreen(t, "profile", "export", "giver", "-o", export, "--recipient", recipient); r.code == 0 || !strings.Contains(r.stderr, "the browser runs") {
		t.Errorf("the export of a running browser: %s", r)
	}
	if _, err := os.Stat(export); err == nil {
		t.Error("it left a file")
	}
	a.quitBrowser(t, "giver")
	a.must(t, "profile", "export", "giver", "-o", export, "--recipient", recipient)
	if text := readFile(t, export); !strings.HasPrefix(text, "age-encryption.org/v1") || strings.Contains(text, "Default/Cookies") {
		t.Error("the export is not encrypted")
	}
	a.must(t, "profile", "import", "taker", export, "--identity", key)
	a.must(t, "browser", "open", "taker", taken.URL+"/page")
	taken.await(t, "/page login=yes")
}

// oneBrowser is the only browser there is.
func (a *agent) oneBrowser(t *testing.T) process {
	t.Helper()
	all := browsersOf(a)
	if len(all) != 1 {
		t.Fatalf("browsers %v, want one", all)
	}
	return all[0]
}

// noPorts checks that no process below the screen's session listens on TCP.
func (a *agent) noPorts(t *testing.T) {
	t.Helper()
	session := only(t, a).session.pid
	uid := ""
	status := readFile(t, filepath.Join("/proc", strconv.Itoa(session), "status"))
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
			uid = f[1]
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(session), "net", table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			const state, owner = 3, 7
			if f := strings.Fields(string(line)); len(f) > owner && f[state] == "0A" && f[owner] == uid {
				t.Errorf("the screen's uid %s listens: %s", uid, line)
			}
		}
	}
}
