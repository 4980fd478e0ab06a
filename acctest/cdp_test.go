// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/testkit/inside"
)

// site is one where people log in by a name, which a cookie keeps. Its field fills the page.
type site struct {
	url    string
	logins chan string // has room for more than there are
}

// newSite serves it where the programs of a screen reach it: a container reaches no site of
// this machine (X37), so its own network has one.
func newSite(t *testing.T, a *agent, profile string) site {
	t.Helper()
	logins := make(chan string, 100)
	server := inside.Serve(t, sessionOf(t, a, profile).pid, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if c, err := r.Cookie("login"); err == nil {
			who = c.Value
		}
		if r.URL.Path == "/login" {
			who = r.URL.Query().Get("as")
			logins <- who
			http.SetCookie(w, &http.Cookie{Name: "login", Value: who, Path: "/", MaxAge: 3600})
		}
		secret := ""
		if who == "person" {
			secret = "hunter2"
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>The site</title><style>
			#as { position: fixed; left: 0; top: 80px; width: 100%%; height: 80%%; background: #00ff7f } #as:focus { background: #ff7f00 }
			</style><h1>%s</h1><form action="/login"><input id="as" name="as" autocomplete="off" aria-label="Name"></form>
			<input type="password" value="%s">`, html.EscapeString(who), secret)
	}))
	return site{server.URL, logins}
}

// cdpPort is `botscreen cdp`, for as long as the test runs.
type cdpPort struct{ Address, WebSocket string }

func newCDPPort(t *testing.T, a *agent, args ...string) (p cdpPort) {
	t.Helper()
	a.begin(t, &p, append([]string{"cdp", "--json"}, args...)...)
	return p
}

// get asks the port and gives the status and what it says.
func (p cdpPort) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(p.Address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// pageAt is the id of the tab that shows the address.
func (p cdpPort) pageAt(t *testing.T, address string) string {
	t.Helper()
	status, body := p.get(t, "/json/list")
	var list []struct{ ID, Type, URL string }
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
		t.Fatalf("/json/list: %d %s", status, body)
	}
	for _, tab := range list {
		if tab.Type == "page" && strings.HasPrefix(tab.URL, address) {
			return tab.ID
		}
	}
	t.Fatalf("no page at %s: %s", address, body)
	return ""
}

// drive is a chromedp program on the tab with this id, a new one for "".
func (p cdpPort) drive(t *testing.T, tab string) (ctx context.Context, leave func()) {
	t.Helper()
	allocator, stop := remote.NewAllocator(t.Context(), p.WebSocket)
	options := []chromedp.ContextOption{chromedp.WithDetachOnCancel(), chromedp.WithNewWindow(false)}
	if tab != "" {
		options = append(options, chromedp.WithTargetID(target.ID(tab)))
	}
	ctx, cancel := chromedp.NewContext(allocator, options...)
	t.Cleanup(func() { cancel(); stop() })
	return ctx, func() { cancel(); stop() }
}

func read[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, actionLimit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// drivenOverCDP: an agent logs in at a site; a person takes the screen over, which cuts the
// agent off, sees the same tab and logs in anew by keyboard; after the hand-back the agent
// finds the tab and the person's login, with chromedp, Playwright and Puppeteer (BRW-09,
// rules L15 and W5).
func drivenOverCDP(t *testing.T, a *agent) {
	a.must(t, "run", a.browserJob(t, "driven"))
	defer a.botscreen(t, "stop", "--force", "driven")
	site := newSite(t, a, "driven")
	port := newCDPPort(t, a, "driven")

	agent, _ := port.drive(t, "")
	if err := chromedp.Do(agent, chromedp.Navigate(site.url+"/login?as=agent")); err != nil {
		t.Fatal(err)
	}
	if got := read[string](t, agent, `document.cookie`); got != "login=agent" {
		t.Fatalf("the agent's cookie is %q", got)
	}
	tab := port.pageAt(t, site.url)
	<-site.logins

	person := viewedBy(t, a, "driven")
	if l := leaseBy(t, a, "take", "driven"); !l.You {
		t.Fatalf("the lease is %+v", l)
	}
	select {
	case <-agent.Done():
	case <-time.After(actionLimit):
		t.Fatal("the agent was not cut off")
	}
	for _, path := range []string{"/json/version", "/json/list", "/devtools/browser/current", "/devtools/page/" + tab} {
		if status, body := port.get(t, path); status != http.StatusConflict || !strings.Contains(body, "controlled") {
			t.Errorf("%s under a person: %d %s", path, status, body)
		}
	}
	a.eventually("the tab on the person's screen", func() bool { return person.colour(t, 400, 400) == [3]byte{0, 0xff, 0x7f} })
	person.logsIn(t, a, site)
	if r := a.botscreen(t, "release", "driven"); r.code == 0 || !strings.Contains(r.stderr, "a password field on its page is filled") {
		t.Errorf("with a filled password field (X18): %s", r)
	}
	if l := leaseBy(t, a, "release", "driven"); l.Holder != "agent" {
		t.Fatalf("the lease is %+v", l)
	}

	if again := port.pageAt(t, site.url); again != tab {
		t.Errorf("the tab is another one: %s, it was %s", again, tab)
	}
	agent, leave := port.drive(t, tab)
	if got := read[string](t, agent, `document.cookie + " " + document.querySelector("h1").textContent`); got != "login=person person" {
		t.Errorf("after the hand-back the agent reads %q", got)
	}
	leave()
	if text := newModel(t, a, "driven").does("page_snapshot", nil); !strings.Contains(text, `heading "person"`) || !strings.Contains(text, `textbox "Name" [e`) {
		t.Errorf("by MCP the agent reads %s", text)
	}
	last := "person" // who logged in
	for _, name := range []string{"playwright", "puppeteer"} {
		t.Run(name, func(t *testing.T) {
			needNode(t, 20) // as Playwright says
			port.script(t, name, site.url, last)
			last = name
		})
	}
}

// needNode skips where node is older than the scripts' libraries want it.
func needNode(t *testing.T, major int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Skipf("needs node: %v", err)
	}
	var have int
	if _, err := fmt.Sscanf(string(out), "v%d.", &have); err != nil || have < major {
		t.Skipf("needs node %d, this is %s", major, bytes.TrimSpace(out))
	}
}

// script runs a program of npm's against the port, unchanged.
func (p cdpPort) script(t *testing.T, name, site, before string) {
	dir := npmClients(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*actionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", name+".js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ADDRESS="+p.Address, "WEBSOCKET="+p.WebSocket, "SITE="+site)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var said struct {
		Before, Words, After string
		Picture              int
	}
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil || said.Before != before || said.Words != name || said.After != name || said.Picture < 1000 {
		t.Errorf("%v, it says %s, want before %q\n%s", err, out, before, &stderr)
	}
}

// npmClients installs what the lockfile pins, without running any script of it.
func npmClients(t *testing.T) string {
	t.Helper()
	const dir = "cdpclients"
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not on PATH")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err == nil {
		return dir
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the packages cannot be had here: %v\n%s", err, out)
	}
	return dir
}

// viewing is a person's view of a screen.
type viewing struct{ *rfb.Client }

func viewedBy(t *testing.T, a *agent, profile string) viewing {
	t.Helper()
	conn, err := net.Dial("unix", view(t, a, profile))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rfb.Connect(t.Context(), conn, rfb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return viewing{client}
}

func (v viewing) send(t *testing.T, messages ...[]byte) {
	t.Helper()
	for _, m := range messages {
		if err := v.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

func (v viewing) click(t *testing.T, x, y uint16) {
	t.Helper()
	for _, buttons := range []uint16{0, 1, 0} {
		v.send(t, rfb.PointerEvent{Buttons: buttons, X: x, Y: y}.Append(nil))
	}
}

// logsIn logs in at the site that is shown, by its field.
func (v viewing) logsIn(t *testing.T, a *agent, s site) {
	t.Helper()
	v.click(t, 400, 400)
	a.eventually("the focus in the field", func() bool { return v.colour(t, 400, 450) == [3]byte{0xff, 0x7f, 0} })
	v.types(t, "person\n")
	select {
	case who := <-s.logins:
		if who != "person" {
			t.Errorf("the person logged in as %q", who)
		}
	case <-time.After(actionLimit):
		t.Fatal("the person cannot log in")
	}
	a.eventually("the page that has the password", func() bool { return v.colour(t, 400, 450) == [3]byte{0, 0xff, 0x7f} })
}

// types presses the keys of a text of ASCII.
func (v viewing) types(t *testing.T, text string) {
	t.Helper()
	for _, c := range text {
		keysym := uint32(c)
		if c == '\n' {
			keysym = 0xff0d // Return, see keysymdef.h
		}
		v.send(t, rfb.KeyEvent{Down: true, Keysym: keysym}.Append(nil), rfb.KeyEvent{Keysym: keysym}.Append(nil))
	}
}

func (v viewing) colour(t *testing.T, x, y int) [3]byte {
	t.Helper()
	img, err := v.ScreenshotOf(t.Context(), image.Rect(x, y, x+1, y+1))
	if err != nil {
		t.Fatal(err)
	}
	return [3]byte(img.Pix)
}

// leftInPages: what the agent put into a page is gone once the person has loaded the page
// again, and reaches no fresh window (threats.md X18).
func leftInPages(t *testing.T, a *agent) {
	a.must(t, "run", a.browserJob(t, "planted"))
	defer a.botscreen(t, "stop", "--force", "planted")
	site := newSite(t, a, "planted")
	port := newCDPPort(t, a, "planted")
	agent, _ := port.drive(t, "")
	if err := chromedp.Do(agent,
		chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `window.left = "script"`})
			if err == nil {
				_, err = cdp.Call(ctx, tab, runtime.AddBinding, runtime.AddBindingParams{Name: "tell"})
			}
			return err
		}),
		chromedp.Navigate(site.url+"/login?as=agent"),
	); err != nil {
		t.Fatal(err)
	}
	const look = `[window.planted, window.left, typeof window.tell].join()`
	if got := read[string](t, agent, `window.planted = "value"; `+look); got != "value,script,function" {
		t.Fatalf("the agent planted %q", got)
	}
	tab, windows := port.pageAt(t, site.url), port.pages(t)

	ann := newBrowser(t)
	ann.watch(viewInBrowser(t, a, "ann", "planted"))
	ann.take("a login")
	ann.press("browser-open")
	ann.accessible("with the browser's panel")
	ann.press("reload")
	ann.press("browser-open")
	ann.press("fresh")
	ann.handBack() // which comes after both
	if n := port.pages(t); n != windows+1 {
		t.Errorf("%d pages became %d, want one more", windows, n)
	}
	agent, leave := port.drive(t, tab)
	defer leave()
	if got := read[string](t, agent, look); got != ",,undefined" {
		t.Errorf("after the page was loaded again it has %q", got)
	}
	ann.quiet()
	a.must(t, "stop", "planted")
	gone(t, a)
}

// pages counts the browser's tabs.
func (p cdpPort) pages(t *testing.T) int {
	t.Helper()
	_, body := p.get(t, "/json/list")
	return strings.Count(body, `"type":"page"`) + strings.Count(body, `"type": "page"`)
}
