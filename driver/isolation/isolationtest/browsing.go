// SPDX-License-Identifier: MPL-2.0

package isolationtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
	"github.com/botscreen/botscreen/shared/testkit/inside"
)

// intranet is a site that the browser reaches through the job's proxy alone.
const intranet = "http://intranet.test"

// web is that site and its proxy in one; only programs of the screen reach it.
type web struct {
	*httptest.Server
	asked chan string // paths; has room for more than there are
}

func newWeb(t *testing.T, pid int) *web {
	w := &web{asked: make(chan string, 100)}
	w.Server = inside.Serve(t, pid, w)
	return w
}

func (w *web) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	if r.URL.Host != "intranet.test" || r.Method == http.MethodConnect {
		http.Error(answer, "no way there", http.StatusBadGateway) // all that the browser asks of its maker
		return
	}
	header := answer.Header()
	switch r.URL.Path {
	case "/favicon.ico":
		http.NotFound(answer, r)
		return
	case "/report":
		header.Set("Content-Disposition", `attachment; filename="report.bin"`)
		header.Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(answer, "the report")
	default:
		header.Set("Content-Type", "text/html")
		_, _ = io.WriteString(answer, "<title>a page</title>")
	}
	w.asked <- r.URL.Path
}

func (w *web) await(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-w.asked:
		if got != want {
			t.Fatalf("the browser asked for %q, want %q", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("the browser never asked for %q", want)
	}
}

// browsing is a screen of an image with a browser, and the web it sees.
type browsing struct {
	*rig
	web *web
}

// testBrowsing is what happens to a browser that was killed, what it left, and what comes
// from and to the node: the same in every sandbox.
func testBrowsing(t *testing.T, s Suite, binary string) {
	r := newRig(t, s.withBrowser(), binary)
	r.launch()
	b := browsing{r, newWeb(t, r.sandbox.Session().PID)}
	plan := r.plan()
	plan.Browser = &screen.BrowserOptions{Enabled: true, Sandbox: true}
	plan.Env = append(plan.Env, "http_proxy="+b.web.URL, "https_proxy="+b.web.URL)
	r.supervise(plan)
	r.awaitReady()
	r.needBrowser(t)
	for _, c := range []struct {
		name string
		run  func(browsing, *testing.T)
	}{
		{"the job's proxy and a download", browsing.testDownload},
		{"W1 a killed browser", browsing.testKilled},
		{"W2 locks of a crash", browsing.testLocks},
		{"W4 a profile of a newer browser", browsing.testNewer},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.run(b, t) }) {
			r.describe()
			return
		}
	}
	r.expectSoundStop(t)
}

// open opens a page of the intranet and reports whether the browser was started for it.
func (b browsing) open(t *testing.T, path string) (started bool) {
	t.Helper()
	ctx, cancel := b.context()
	defer cancel()
	answer, err := b.client.OpenBrowser(ctx, control.BrowserRequest{URL: intranet + path})
	must(t, err)
	return answer.Started
}

// awaitEnd waits until no browser runs and gives what the status says about its end.
func (b browsing) awaitEnd(t *testing.T) string {
	t.Helper()
	ctx, cancel := b.context()
	defer cancel()
	for {
		status, err := b.client.Status(ctx)
		must(t, err)
		if !status.Browser.Running {
			return status.Browser.Trouble.String()
		}
	}
}

func (b browsing) close(t *testing.T) {
	t.Helper()
	ctx, cancel := b.context()
	defer cancel()
	must(t, b.client.CloseBrowser(ctx))
}

// do runs a script that has to succeed, with the profile folder as its working directory.
func (b browsing) do(t *testing.T, script string) string {
	t.Helper()
	got := b.shell(t, "set -e; cd ~/browser; "+script)
	if got.ExitCode != 0 {
		t.Fatalf("%s: %+v", script, got)
	}
	return got.out
}

// testDownload: the browser goes through the proxy that the job's environment names, and
// what it downloads lies in the home.
func (b browsing) testDownload(t *testing.T) {
	if !b.open(t, "/report") {
		t.Error("a browser ran before")
	}
	b.web.await(t, "/report")
	for end := time.Now().Add(limit); ; {
		text, err := b.readHome(t, "Downloads/report.bin")
		if err == nil && string(text) == "the report" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the download is not in the home: %q, %v", text, err)
		}
	}
}

// testKilled: the next one who asks gets another browser.
func (b browsing) testKilled(t *testing.T) {
	killed := b.browsers(t)
	if len(killed) != 1 {
		t.Fatalf("browsers %v, want one", killed)
	}
	must(t, unix.Kill(killed[0], unix.SIGKILL))
	if trouble := b.awaitEnd(t); !strings.Contains(trouble, "SIGKILL") {
		t.Errorf("the status says %q", trouble)
	}
	if !b.open(t, "/anew") {
		t.Error("it is said to have run")
	}
	b.web.await(t, "/anew")
	if now := b.browsers(t); len(now) != 1 || now[0] == killed[0] {
		t.Errorf("browsers %v, it was %v", now, killed)
	}
}

// testLocks: what a lock names, another host or a pid of somebody else's, stops no browser.
func (b browsing) testLocks(t *testing.T) {
	for _, owner := range []string{"oldhost-4242", "$(hostname)-999999", "$(hostname)-$PPID"} {
		b.close(t)
		b.do(t, `rm -f Singleton*; ln -s "`+owner+`" SingletonLock; ln -s 1234567890 SingletonCookie; ln -s /tmp/gone/SingletonSocket SingletonSocket
			printf '9222\n/devtools/browser/0\n' >DevToolsActivePort`)
		if !b.open(t, "/unlocked") {
			t.Errorf("%s: it is said to have run", owner)
		}
		b.web.await(t, "/unlocked")
		if left := b.do(t, "ls | grep DevTools || true"); left != "" {
			t.Errorf("%s: the port of before is left", owner)
		}
	}
}

// testNewer: a browser that is older than the profile does not touch it.
func (b browsing) testNewer(t *testing.T) {
	b.close(t)
	version := b.do(t, "cat 'Last Version'; printf 999.0.1.2 >'Last Version'")
	ctx, cancel := b.context()
	defer cancel()
	_, err := b.client.OpenBrowser(ctx, control.BrowserRequest{URL: intranet + "/page"})
	var refusal *control.Error
	if !errors.As(err, &refusal) || refusal.Kind != control.Refused || !strings.Contains(refusal.Message, "last used by version 999.0.1.2") {
		t.Errorf("the answer is %v", err)
	}
	if found := b.browsers(t); len(found) > 0 {
		t.Errorf("browsers %v", found)
	}
	b.do(t, fmt.Sprintf("printf %s >'Last Version'", version))
}

// agent speaks to the supervisor as the screen's agent does.
func (r *rig) agent(t *testing.T) *control.Client {
	t.Helper()
	agent := control.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := r.client.Tunnel(ctx, control.CommandAgent)
		if err != nil {
			return nil, err
		}
		if err := control.OpenTunnel(ctx, conn, control.Hello{}); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	})
	t.Cleanup(agent.Close)
	return agent
}

// awaitWindow waits until a window of this title has the focus.
func (r *rig) awaitWindow(t *testing.T, title string) {
	t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	agent := r.agent(t)
	var before control.Windows
	for {
		seen, err := agent.Windows(ctx)
		if err != nil {
			t.Fatalf("no window %q comes up: %v, there are %+v", title, err, before.Windows)
		}
		before = seen
		for _, w := range seen.Windows {
			if strings.HasPrefix(w.Title.String(), title) && w.Focused && !w.Minimized {
				return
			}
		}
	}
}
