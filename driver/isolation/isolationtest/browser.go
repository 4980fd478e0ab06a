// SPDX-License-Identifier: MPL-2.0

package isolationtest

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
	"github.com/botscreen/botscreen/shared/testkit/chromium"
)

// testBrowser runs the browser of an image that has one: whoever asks there is one process,
// its pages are confined by its own sandbox, it opens no port, and it ends well with its
// screen (W1, W3, X17, X23, BRW-12).
func testBrowser(t *testing.T, s Suite, binary string) {
	r := newRig(t, s.withBrowser(), binary)
	r.launch()
	plan := r.plan()
	plan.Browser = &screen.BrowserOptions{Enabled: true, Sandbox: true}
	r.supervise(plan)
	r.awaitReady()
	r.needBrowser(t)
	opener := filepath.Join(r.order.XDir, "botscreen-browser")
	if clicked := r.run(t, control.ExecRequest{Argv: []string{opener, "about:blank"}}, strings.NewReader("")); clicked.ExitCode != 0 {
		r.describe()
		t.Fatalf("the opener: %+v", clicked)
	}
	ctx, cancel := r.context()
	defer cancel()
	page := r.page(t)
	if answer, err := r.client.OpenBrowser(ctx, control.BrowserRequest{URL: page}); err != nil || answer.Started || answer.HandedOver {
		r.describe()
		t.Fatalf("open a file: %+v, %v", answer, err)
	}
	r.awaitWindow(t, "a page of the home")
	r.expectShown(t)
	status, err := r.client.Status(ctx)
	must(t, err)
	if b := status.Browser; b == nil || !b.Running || b.Sandbox != control.SandboxNamespaces {
		t.Errorf("the status says %+v", b)
	}
	if s.ReadHome == nil { // else its processes are another node's
		r.expectOneConfined(t)
	}
	r.expectSoundStop(t)
}

// pageColour fills the page of the test, and nothing else of a desktop has it.
var pageColour = color.RGBA{R: 0x12, G: 0xab, B: 0x34, A: 0xff}

// page makes a file that the browser can show, and gives its address.
func (r *rig) page(t *testing.T) string {
	t.Helper()
	text := fmt.Sprintf("<title>a page of the home</title><body style='background: rgb(%d,%d,%d)'>", pageColour.R, pageColour.G, pageColour.B)
	if made := r.run(t, control.ExecRequest{Argv: []string{"sh", "-c", "cat >page.html"}}, strings.NewReader(text)); made.ExitCode != 0 {
		t.Fatalf("make the page: %+v", made)
	}
	return (&url.URL{Scheme: "file", Path: filepath.Join(r.order.Home, "page.html")}).String()
}

// expectShown waits for a picture that shows the page.
func (r *rig) expectShown(t *testing.T) {
	t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	for {
		shot, err := r.client.Screenshot(ctx, control.ScreenshotRequest{Rect: image.Rect(400, 400, 401, 401)})
		if err != nil {
			r.describe()
			t.Fatalf("no picture shows the page: %v", err)
		}
		picture, err := png.Decode(bytes.NewReader(shot.Data))
		must(t, err)
		if at := picture.Bounds().Min; color.RGBAModel.Convert(picture.At(at.X, at.Y)) == pageColour {
			return
		}
	}
}

// needBrowser skips where the screen has none, or none that can be confined.
func (r *rig) needBrowser(t *testing.T) {
	t.Helper()
	chromium.NeedNamespaces(t)
	if has := r.shell(t, "command -v chromium"); has.ExitCode != 0 {
		t.Skip("needs chromium inside: scripts/image/build.sh full TAG makes an image with it, which scripts/with-engine.sh finds by its label")
	}
}

// expectOneConfined looks at the browser's processes.
func (r *rig) expectOneConfined(t *testing.T) {
	t.Helper()
	if n := len(r.browsers(t)); n != 1 {
		t.Errorf("%d browsers, want one", n)
	}
	for end := time.Now().Add(limit); !r.anyConfined(t); runtime.Gosched() {
		if time.Now().After(end) {
			r.describe()
			t.Fatal("no page runs in the browser's sandbox")
		}
	}
	r.expectNoPort(t)
}

// expectSoundStop ends the screen and looks at what the browser wrote last.
func (r *rig) expectSoundStop(t *testing.T) {
	t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	must(t, r.client.Stop(ctx, control.StopRequest{Grace: 10 * time.Second}))
	preferences, err := r.readHome(t, "browser/Default/Preferences")
	if err != nil || !bytes.Contains(preferences, []byte(`"exit_type":"Normal"`)) {
		t.Errorf("the browser did not end well: %v", err)
	}
	r.expectEnd()
}

// readHome reads what a screen wrote.
func (r *rig) readHome(t *testing.T, path string) ([]byte, error) {
	path = filepath.Join(r.order.Home, path)
	if r.suite.ReadHome != nil {
		return r.suite.ReadHome(t, r.order, path)
	}
	return os.ReadFile(path)
}

// browsers are the browsers below the session, without their helpers.
func (r *rig) browsers(t *testing.T) []int {
	t.Helper()
	below, err := process.Descendants(r.sandbox.Session().PID)
	must(t, err)
	return chromium.Running(below)
}

// anyConfined looks at the renderers there are: each is in another user namespace than
// the session, and has filters of its own upon those it inherited. A renderer puts them
// on soon after its start and tells nobody; spare ones come and go.
func (r *rig) anyConfined(t *testing.T) bool {
	t.Helper()
	session := r.sandbox.Session().PID
	below, err := process.Descendants(session)
	must(t, err)
	around, inherited := confinement(session)
	for _, pid := range below { // the session has put one upon some of its threads
		if _, filters := confinement(pid); filters > 0 {
			inherited = min(inherited, filters)
		}
	}
	found := false
	for _, pid := range below {
		line := chromium.CommandLine(pid)
		if bytes.Contains(line, []byte("--no-sandbox")) {
			t.Errorf("pid %d has --no-sandbox", pid)
		}
		if !bytes.Contains(line, []byte("--type=renderer")) {
			continue
		}
		namespace, filters := confinement(pid)
		if filters > 0 && namespace == around {
			t.Errorf("the renderer %d has the session's user namespace", pid)
		}
		found = found || filters > inherited
	}
	return found
}

// confinement is a process' user namespace and how many seccomp filters it has; nothing
// of one that is gone.
func confinement(pid int) (namespace string, filters int) {
	dir := "/proc/" + strconv.Itoa(pid)
	namespace, _ = os.Readlink(dir + "/ns/user")
	status, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(status)) {
		if n, ok := strings.CutPrefix(line, "Seccomp_filters:"); ok {
			filters, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return namespace, filters
}

// expectNoPort checks that the screen's uid listens on no TCP port of the session's network.
func (r *rig) expectNoPort(t *testing.T) {
	t.Helper()
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.sandbox.Session().PID, table))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			const state, owner, listen = 3, 7, "0A"
			if f := strings.Fields(line); len(f) > owner && f[state] == listen && f[owner] == fmt.Sprint(r.order.Account.UID) {
				t.Errorf("a program of the screen listens: %s", line)
			}
		}
	}
}
