// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/botscreen/botscreen/shared/testkit/chromium"
)

// browserImages name images with a browser, as scripts/with-engine.sh finds them.
var browserImages = map[string]string{"docker": "BOTSCREEN_TEST_BROWSER_IMAGE", "apptainer": "BOTSCREEN_TEST_BROWSER_ROOT"}

// browserJob writes a job file with one screen that has a browser, and memory and time for it.
// The test is skipped where there is none.
func (a *agent) browserJob(t *testing.T, profile string, config ...string) string {
	t.Helper()
	if variable := browserImages[a.isolation]; variable == "" {
		chromium.Need(t)
	} else {
		chromium.NeedNamespaces(t)
		config = append([]string{fmt.Sprintf("image = %q", browserImage(t, a))}, config...)
	}
	path := a.job(t, profile, config...)
	job := replaceLine(readFile(t, path), "memory", "memory = 2000")
	// A browser that is killed at a stop loses its newest login (BRW-12).
	writeFile(t, path, replaceLine(job, "kill_timeout", `kill_timeout = "30s"`))
	return path
}

func browserImage(t *testing.T, a *agent) string {
	t.Helper()
	image := os.Getenv(browserImages[a.isolation])
	if image == "" {
		t.Skipf("needs an image with a browser: BOTSCREEN_TEST_FULL=1 scripts/with-engine.sh builds it, and %s names another", browserImages[a.isolation])
	}
	return image
}

// personFirst: a person opens the browser by its icon and logs in; the agent that comes
// afterwards drives that very browser, with the person's login (W1).
func personFirst(t *testing.T, a *agent) {
	start := fmt.Sprintf("/tmp/acctest-%d.html", os.Getpid())
	a.must(t, "run", a.browserJob(t, "leading", fmt.Sprintf("browser { start_url = %q }", "file://"+start)))
	defer a.botscreen(t, "stop", "--force", "leading")
	site := newSite(t, a, "leading")
	a.must(t, "exec", "-T", "leading", "sh", "-c", fmt.Sprintf(`echo '<meta http-equiv="refresh" content="0; url=%s">' >%s`, site.url, start))
	defer os.Remove(start) // there where a screen has the node's /tmp
	person := viewedBy(t, a, "leading")
	if l := leaseBy(t, a, "take", "leading"); !l.You {
		t.Fatalf("the lease is %+v", l)
	}
	a.eventually("the icon on the panel", func() bool {
		return person.colour(t, int(panelIcon.X), int(panelIcon.Y)) != person.colour(t, 500, int(panelIcon.Y))
	})
	person.click(t, panelIcon.X, panelIcon.Y)
	a.eventually("the site on the person's screen", func() bool { return person.colour(t, 400, 400) == [3]byte{0, 0xff, 0x7f} })
	opened := a.oneBrowser(t)
	person.logsIn(t, a, site)
	if r := a.botscreen(t, "release", "leading"); r.code == 0 || !strings.Contains(r.stderr, "a password field on its page is filled") {
		t.Errorf("with a filled password field (X18): %s", r)
	}
	if l := leaseBy(t, a, "release", "leading"); l.Holder != "agent" {
		t.Fatalf("the lease is %+v", l)
	}

	port := newCDPPort(t, a, "leading")
	agent, leave := port.drive(t, port.pageAt(t, site.url))
	defer leave()
	if got := read[string](t, agent, `document.cookie`); got != "login=person" {
		t.Errorf("the agent's cookie is %q", got)
	}
	if now := a.oneBrowser(t); now.pid != opened.pid {
		t.Errorf("pid %d, then pid %d", opened.pid, now.pid)
	}
}

// browserOutlivesPlugin: a plugin that is killed takes no browser with it, and the next one
// finds it.
func browserOutlivesPlugin(t *testing.T, a *agent) {
	a.must(t, "run", a.browserJob(t, "reader"))
	defer a.must(t, "stop", "reader")
	site := newVisits(t, a, "reader")
	a.must(t, "browser", "open", "reader", site.URL+"/login")
	site.await(t, "/login")
	before, old := a.oneBrowser(t), plugins(a)
	if len(old) != 1 {
		t.Fatalf("plugins %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("another plugin", func() bool { now := plugins(a); return len(now) == 1 && now[0].pid != old[0].pid })
	a.eventually("exec through it", func() bool { return a.botscreen(t, "exec", "reader", "true").code == 0 })
	a.must(t, "browser", "open", "reader", site.URL+"/again")
	site.await(t, "/again login=yes")
	if now := a.oneBrowser(t); now.pid != before.pid || now.start != before.start {
		t.Errorf("pid %d, then pid %d", before.pid, now.pid)
	}
}

// loginOutlivesContainers: a container that somebody stops or removes with its browser open
// is the end of that screen, in words; the next one has the login, and takes no lock of the
// last one's for a browser (P3, W2, BRW-12).
func loginOutlivesContainers(t *testing.T, a *agent) {
	endpoint := os.Getenv("BOTSCREEN_TEST_DOCKER")
	a.must(t, "run", a.browserJob(t, "clinger"))
	defer a.must(t, "stop", "clinger")
	site := newVisits(t, a, "clinger")
	a.must(t, "browser", "open", "clinger", site.URL+"/login")
	site.await(t, "/login")
	for _, end := range []string{"stop", "rm --force"} {
		before := sessionOf(t, a, "clinger")
		name := a.container(t)
		if out, err := docker(endpoint, append(strings.Fields(end), name)...); err != nil {
			t.Fatalf("docker %s: %v %s", end, err, out)
		}
		a.eventually("another screen", func() bool {
			all := screens(a)
			for _, s := range all {
				if len(all) != 1 || s.session.pid == 0 || s.session.pid == before.pid {
					return false
				}
			}
			return len(all) == 1 && a.botscreen(t, "exec", "clinger", "true").code == 0
		})
		site = newVisits(t, a, "clinger")
		a.must(t, "browser", "open", "clinger", site.URL+"/again")
		site.await(t, "/again login=yes")
		a.oneBrowser(t)
	}
	a.eventually("the event of it", func() bool {
		return strings.Contains(a.events(t, a.onlyAlloc(t, "clinger"), "clinger"), "container")
	})
}

// container is the one container of the agent's screens.
func (a *agent) container(t *testing.T) string {
	t.Helper()
	out, err := docker(os.Getenv("BOTSCREEN_TEST_DOCKER"), "ps", "--quiet", "--filter", "label=botscreen.owner="+a.dir+"/state")
	if name := strings.TrimSpace(out); err == nil && name != "" && !strings.Contains(name, "\n") {
		return name
	}
	t.Fatalf("want one container: %v %q", err, out)
	return ""
}

// loginOutlivesImages: the browser's profile is a mount of the profile's, not of the image's
// (P5, W6).
func loginOutlivesImages(t *testing.T, a *agent) {
	tag := fmt.Sprintf("127.0.0.1:1/acctest-%d/browser:1", os.Getpid()) // of a registry that is away
	run := func(args ...string) string {
		t.Helper()
		out, err := docker(os.Getenv("BOTSCREEN_TEST_DOCKER"), args...)
		if err != nil {
			t.Fatalf("docker %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	run("tag", browserImage(t, a), tag)
	t.Cleanup(func() { _, _ = docker(os.Getenv("BOTSCREEN_TEST_DOCKER"), "rmi", tag) })
	path := a.browserJob(t, "mover")
	writeFile(t, path, replaceLine(readFile(t, path), "image", fmt.Sprintf("image = %q", tag)))
	a.must(t, "run", path)
	defer a.must(t, "stop", "mover")
	site := newVisits(t, a, "mover")
	a.must(t, "browser", "open", "mover", site.URL+"/login")
	site.await(t, "/login")

	container := run("create", tag, "true")
	next := run("commit", "--change", "LABEL moved=yes", container, tag)
	run("rm", container)
	if s := imageBy(t, a, 0, "switch", "mover"); s.Next != next {
		t.Errorf("switched: %+v", s)
	}
	a.eventually("the screen on its new image", func() bool {
		var s imageState
		r := a.botscreen(t, "image", "check", "mover", "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &s) == nil && s.Runs == next && a.botscreen(t, "exec", "mover", "true").code == 0
	})
	site = newVisits(t, a, "mover")
	a.must(t, "browser", "open", "mover", site.URL+"/again")
	site.await(t, "/again login=yes")
	a.oneBrowser(t)
}
