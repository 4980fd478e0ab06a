// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
	"github.com/botscreen/botscreen/shared/testkit/chromium"
)

// site is a web site that tells which of its pages were asked for, and with which cookies.
type site struct {
	*httptest.Server
	visits chan visit
}

type visit struct{ path, cookies string }

func newSite(t *testing.T) *site {
	s := &site{visits: make(chan visit, 64)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/login" {
			http.SetCookie(w, &http.Cookie{Name: "login", Value: "yes", Path: "/", MaxAge: 86400})
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>"+r.URL.Path+"</title>")
		s.visits <- visit{r.URL.Path, r.Header.Get("Cookie")}
	}))
	t.Cleanup(s.Close)
	return s
}

// await is the next visit, which has to be of this page.
func (s *site) await(t *testing.T, path string) visit {
	t.Helper()
	select {
	case v := <-s.visits:
		if v.path != path {
			t.Fatalf("the browser asked for %s, want %s", v.path, path)
		}
		return v
	case <-time.After(limit):
		t.Fatalf("the browser never asked for %s", path)
		return visit{}
	}
}

// newBrowsing is a screen with a browser.
func newBrowsing(t *testing.T, change func(*dialhome.Plan)) *supervised {
	t.Helper()
	return newBrowsingUnder(t, screen.TakeoverPolicy{}, change)
}

// newBrowsingUnder is newBrowsing with what a takeover does.
func newBrowsingUnder(t *testing.T, policy screen.TakeoverPolicy, change func(*dialhome.Plan)) *supervised {
	t.Helper()
	chromium.Need(t)
	return newSupervisedWith(t, func(c *supervise.Config) {
		c.Plan.Browser = &screen.BrowserOptions{Enabled: true, Sandbox: true}
		c.Takeover = policy
		change(c.Plan)
	})
}

func asItIs(*dialhome.Plan) {}

// open asks for an address as an operator does.
func (s *supervised) open(address string) control.BrowserAnswer {
	s.t.Helper()
	answer, err := s.client.OpenBrowser(s.t.Context(), control.BrowserRequest{URL: address})
	must(s.t, err)
	return answer
}

// click asks for an address as programs of the desktop do.
func (s *supervised) click(address string) {
	s.t.Helper()
	result, err := s.run(control.ExecRequest{Argv: []string{filepath.Join(s.plan.XDir, OpenerName), address}}, strings.NewReader(""))
	if err != nil || result.ExitCode != 0 {
		s.t.Fatalf("open %s: %+v, %v", address, result, err)
	}
}

// browsers are the pids of the browsers below the session, without their helpers.
func (s *supervised) browsers() []int {
	s.t.Helper()
	below, err := process.Descendants(s.identity.PID)
	must(s.t, err)
	return chromium.Running(below)
}

// W1, X17: whoever asks first, program of the desktop or command line, there is one browser
// with one profile, on whose node no port was opened and whose pages are confined.
func TestW1OneBrowser(t *testing.T) {
	site := newSite(t)
	for _, first := range []string{"desktop", "command"} {
		t.Run(first+" first", func(t *testing.T) {
			s := newBrowsing(t, asItIs)
			if first == "desktop" {
				s.click(site.URL + "/clicked")
				site.await(t, "/clicked")
			}
			if answer := s.open(site.URL + "/opened"); answer.Started != (first == "command") {
				t.Errorf("started %t", answer.Started)
			}
			site.await(t, "/opened")
			if first == "command" {
				s.click(site.URL + "/clicked")
				site.await(t, "/clicked")
			}
			if found := s.browsers(); len(found) != 1 {
				t.Errorf("browsers %v, want one", found)
			}
			s.checkConfined()
			if ports := listening(t, s.uid); len(ports) > 0 {
				t.Errorf("the screen's uid listens on %v", ports)
			}
			if _, err := os.Stat(filepath.Join(s.plan.Home, "browser", "Local State")); err != nil {
				t.Errorf("the profile folder: %v", err)
			}
			status := s.status().Browser
			if status == nil || !status.Running || status.Sandbox != control.SandboxNamespaces || !strings.HasPrefix(status.Version.String(), "Chromium ") {
				t.Errorf("the status says %+v", status)
			}
		})
	}
}

// checkConfined looks at the pages' processes: each in a user namespace of its own.
func (s *supervised) checkConfined() {
	s.t.Helper()
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", s.identity.PID))
	must(s.t, err)
	await(s.t, "a confined page", func() bool {
		below, err := process.Descendants(s.identity.PID)
		must(s.t, err)
		confined := false
		for _, pid := range below {
			line := chromium.CommandLine(pid)
			if bytes.Contains(line, []byte("--no-sandbox")) {
				s.t.Fatalf("pid %d has --no-sandbox", pid)
			}
			namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
			if err == nil && bytes.Contains(line, []byte("--type=renderer")) {
				confined = confined || namespace != own
			}
		}
		return confined
	})
}

// listening are the TCP ports on which a uid listens, see proc(5).
func listening(t *testing.T, uid int) []string {
	t.Helper()
	var ports []string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			const state, owner, listen = 3, 7, "0A"
			if f := strings.Fields(line); len(f) > owner && f[state] == listen && f[owner] == strconv.Itoa(uid) {
				ports = append(ports, f[1])
			}
		}
	}
	return ports
}

// BRW-12, I4: a browser is asked to go before its desktop ends, so the newest login is
// there when it is started again.
func TestBRW12LoginsOutliveSleep(t *testing.T) {
	site := newSite(t)
	s := newBrowsing(t, asItIs)
	s.open(site.URL + "/login")
	site.await(t, "/login")
	s.open(site.URL + "/page")
	if v := site.await(t, "/page"); v.cookies != "login=yes" {
		t.Fatalf("the page came with %q", v.cookies)
	}
	must(t, s.client.Sleep(t.Context()))
	if left := processesOf(s.uid); len(left) != 1 {
		t.Errorf("asleep there are %v", left)
	}
	if answer := s.open(site.URL + "/again"); !answer.Started {
		t.Error("it is said to have run")
	}
	if v := site.await(t, "/again"); v.cookies != "login=yes" {
		t.Errorf("after the sleep the page came with %q", v.cookies)
	}
}

// BRW-01, W2: what a browser left behind that ended badly stops no other one, whatever the
// lock says: another host, a pid that is gone, or one that is somebody else by now.
func TestBRW01StaleLocks(t *testing.T) {
	site := newSite(t)
	s := newBrowsing(t, asItIs)
	host, err := os.Hostname()
	must(t, err)
	for kind, owner := range map[string]string{
		"foreign": "oldhost-4242", "dead": host + "-999999", "recycled": fmt.Sprintf("%s-%d", host, os.Getpid()),
	} {
		t.Run(kind, func(t *testing.T) {
			profile := browser.Folder(s.plan.Home)
			must(t, os.MkdirAll(profile, 0o700))
			must(t, os.Chown(profile, s.uid, s.uid))
			for name, target := range map[string]string{
				"SingletonLock": owner, "SingletonCookie": "1234567890", "SingletonSocket": "/tmp/.org.chromium.Chromium.gone/SingletonSocket",
			} {
				_ = os.Remove(filepath.Join(profile, name))
				must(t, os.Symlink(target, filepath.Join(profile, name)))
				must(t, os.Lchown(filepath.Join(profile, name), s.uid, s.uid))
			}
			stale := filepath.Join(profile, "DevToolsActivePort")
			must(t, os.WriteFile(stale, []byte("9222\n/devtools/browser/00000000-0000-0000-0000-000000000000\n"), 0o600))
			must(t, os.Chown(stale, s.uid, s.uid))
			if answer := s.open(site.URL + "/" + kind); !answer.Started {
				t.Error("it is said to have run")
			}
			site.await(t, "/"+kind)
			if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the stale port is still there (%v)", err)
			}
			s.quit()
		})
	}
}

// quit ends the browser as a person does who closes it.
func (s *supervised) quit() {
	s.t.Helper()
	found := s.browsers()
	if len(found) != 1 {
		s.t.Fatalf("browsers %v", found)
	}
	must(s.t, unix.Kill(found[0], unix.SIGTERM))
	await(s.t, "the end of the browser", func() bool { return !s.status().Browser.Running })
}

// W1: a browser that was killed is started anew for whoever asks next, and says nothing of
// a crash.
func TestKilledBrowser(t *testing.T) {
	site := newSite(t)
	s := newBrowsing(t, asItIs)
	s.open(site.URL + "/one")
	site.await(t, "/one")
	must(t, unix.Kill(s.browsers()[0], unix.SIGKILL))
	await(t, "the end of the browser", func() bool { return !s.status().Browser.Running })
	if trouble := s.status().Browser.Trouble.String(); !strings.Contains(trouble, "SIGKILL") {
		t.Errorf("the status says %q", trouble)
	}
	if answer := s.open(site.URL + "/two"); !answer.Started {
		t.Error("it is said to have run")
	}
	site.await(t, "/two")
	if found := s.browsers(); len(found) != 1 {
		t.Errorf("browsers %v, want one", found)
	}
	for pid := range processesOf(s.uid) {
		line := chromium.CommandLine(pid)
		if bytes.Contains(line, []byte("/two")) {
			t.Errorf("the address stands in the arguments of pid %d", pid)
		}
	}
}

// W4: a browser that is older than the profile does not touch it.
func TestW4OlderBrowser(t *testing.T) {
	s := newBrowsing(t, asItIs)
	profile := browser.Folder(s.plan.Home)
	must(t, os.MkdirAll(profile, 0o700))
	must(t, os.Chown(profile, s.uid, s.uid))
	must(t, os.WriteFile(filepath.Join(profile, "Last Version"), []byte("999.0.1.2"), 0o644))
	_, err := s.client.OpenBrowser(t.Context(), control.BrowserRequest{})
	var refusal *control.Error
	if !errors.As(err, &refusal) || refusal.Kind != control.Refused || !strings.Contains(refusal.Message, "last used by version 999.0.1.2") {
		t.Errorf("the answer is %v", err)
	}
	if found := s.browsers(); len(found) > 0 {
		t.Errorf("browsers %v", found)
	}
}

// S13: a path with a space and a quote works for opener, entries and profile.
func TestS13BrowserPaths(t *testing.T) {
	site := newSite(t)
	s := newBrowsing(t, func(p *dialhome.Plan) {
		for _, dir := range []*string{&p.Home, &p.XDir} {
			odd := filepath.Join(filepath.Dir(*dir), `a "b' $`+filepath.Base(*dir))
			must(t, os.Rename(*dir, odd))
			*dir = odd
		}
		p.RuntimeDir = filepath.Join(p.XDir, "runtime")
	})
	s.click(site.URL + "/clicked")
	site.await(t, "/clicked")
	if _, err := exec.LookPath("gio"); err != nil {
		t.Skip("needs gio for the rest")
	}
	result, err := s.run(control.ExecRequest{GUI: true, Argv: []string{"gio", "open", site.URL + "/default"}}, strings.NewReader(""))
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	site.await(t, "/default")
	if found := s.browsers(); len(found) != 1 {
		t.Errorf("browsers %v, want one", found)
	}
}

// BRW-03: a browser that somebody started by hand with the profile is found: the address
// goes to it, and nobody takes the end of ours for a crash.
func TestBRW03HandedOver(t *testing.T) {
	site := newSite(t)
	s := newBrowsing(t, asItIs)
	go func() {
		_, _ = s.run(control.ExecRequest{GUI: true, Argv: []string{
			"chromium", "--no-first-run", "--user-data-dir=" + browser.Folder(s.plan.Home), site.URL + "/byhand",
		}}, strings.NewReader(""))
	}()
	site.await(t, "/byhand")
	if answer := s.open(site.URL + "/handed"); !answer.HandedOver {
		t.Errorf("the answer is %+v", answer)
	}
	site.await(t, "/handed")
	if found := s.browsers(); len(found) != 1 {
		t.Errorf("browsers %v, want the one", found)
	}
	if trouble := s.status().Browser.Trouble.String(); trouble != "" {
		t.Errorf("the status says %q", trouble)
	}
}

// L15: while a person holds, nobody but them opens anything.
func TestL15BrowserOpenIsFenced(t *testing.T) {
	s := newBrowsing(t, asItIs)
	_, err := s.client.Take(t.Context(), control.TakeRequest{Viewer: "v-0123456789abcdef"})
	must(t, err)
	_, err = s.client.OpenBrowser(t.Context(), control.BrowserRequest{URL: "about:blank"})
	if !errors.Is(err, &control.Error{Kind: control.HumanHasControl}) {
		t.Errorf("the answer is %v", err)
	}
	if found := s.browsers(); len(found) > 0 {
		t.Errorf("browsers %v", found)
	}
}

// The browser works without a network beyond the screen, through a proxy that the job's
// environment names, and puts what it downloads into the home.
func TestBrowserProxyAndDownloads(t *testing.T) {
	asked := make(chan string, 16)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Host + r.URL.Path
		if r.Method == http.MethodConnect || r.URL.Host != "intranet.test" {
			http.Error(w, "no way there", http.StatusBadGateway) // all that the browser asks of its maker
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="report.bin"`)
		_, _ = io.WriteString(w, "the report")
	}))
	defer proxy.Close()
	s := newBrowsing(t, func(p *dialhome.Plan) {
		p.Env = append(p.Env, "http_proxy="+proxy.URL, "https_proxy="+proxy.URL)
	})
	s.open("http://intranet.test/report")
	for {
		select {
		case got := <-asked:
			if got != "GET intranet.test/report" {
				continue
			}
		case <-time.After(limit):
			t.Fatal("the browser did not ask the proxy")
		}
		break
	}
	file := filepath.Join(s.plan.Home, "Downloads", "report.bin")
	await(t, "the download", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "the report"
	})
}

// S13, X32: a screen without a browser says so, whoever asks, and nothing of one is there.
func TestNoBrowser(t *testing.T) {
	s := newSupervised(t)
	_, err := s.client.OpenBrowser(t.Context(), control.BrowserRequest{URL: "about:blank"})
	var refusal *control.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "enabled = false") {
		t.Errorf("the answer is %v", err)
	}
	for _, name := range []string{OpenerName, openerSocket, "share"} {
		if _, err := os.Lstat(filepath.Join(s.plan.XDir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if status := s.status(); status.Browser != nil {
		t.Errorf("the status says %+v", status.Browser)
	}
}

// X22: what the job names as its browser runs as the screen's uid, never as another one.
func TestX22BrowserOfTheJob(t *testing.T) {
	mine := ""
	s := newBrowsing(t, func(p *dialhome.Plan) {
		mine = filepath.Join(filepath.Dir(p.Home), "mine")
		must(t, os.WriteFile(mine, []byte("#!/bin/sh\nid -u >>"+p.Home+"/ids\necho broken; exit 7\n"), 0o755))
		p.Browser.Executable = mine
	})
	_, err := s.client.OpenBrowser(t.Context(), control.BrowserRequest{})
	var refusal *control.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "does not tell its version") {
		t.Errorf("the answer is %v", err)
	}
	ids, err := os.ReadFile(filepath.Join(s.plan.Home, "ids"))
	must(t, err)
	for _, id := range strings.Fields(string(ids)) {
		if id != strconv.Itoa(s.uid) {
			t.Errorf("it ran as uid %s, want %d", id, s.uid)
		}
	}
}

// A browser that dies at its start is reported with its last words, and at once.
func TestBrowserDiesYoung(t *testing.T) {
	s := newBrowsing(t, func(p *dialhome.Plan) {
		mine := filepath.Join(filepath.Dir(p.Home), "mine")
		must(t, os.WriteFile(mine, []byte("#!/bin/sh\n[ \"$1\" = --version ] && exec echo Chromium 1.2.3.4\necho out of luck >&2; exit 7\n"), 0o755))
		p.Browser.Executable = mine
	})
	_, err := s.client.OpenBrowser(t.Context(), control.BrowserRequest{})
	var refusal *control.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "exited 7") || !strings.Contains(refusal.Message, "out of luck") {
		t.Errorf("the answer is %v", err)
	}
	if trouble := s.status().Browser.Trouble.String(); !strings.Contains(trouble, "out of luck") {
		t.Errorf("the status says %q", trouble)
	}
}

// BRW-12, X3: a takeover that clears the desktop asks the browser to go before it ends the
// rest, so the newest login is there for the next one.
func TestBRW12LoginsOutliveAClearing(t *testing.T) {
	site := newSite(t)
	s := newBrowsingUnder(t, screen.TakeoverPolicy{Takeover: screen.TakeoverClean}, asItIs)
	s.open(site.URL + "/login")
	site.await(t, "/login")
	const person = "v-0123456789abcdef"
	_, err := s.client.Take(t.Context(), control.TakeRequest{Viewer: person})
	must(t, err)
	if found := s.browsers(); len(found) > 0 {
		t.Errorf("under the person there are the browsers %v", found)
	}
	_, err = s.client.Release(t.Context(), control.ReleaseRequest{Viewer: person})
	must(t, err)
	s.open(site.URL + "/again")
	if v := site.await(t, "/again"); v.cookies != "login=yes" {
		t.Errorf("after the hand-back the page came with %q", v.cookies)
	}
	must(t, s.client.CloseBrowser(t.Context()))
	if found := s.browsers(); len(found) > 0 {
		t.Errorf("closed, there are the browsers %v", found)
	}
}
