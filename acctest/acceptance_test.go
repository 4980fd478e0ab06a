// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"errors"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAcc runs one suite of black-box tests against each agent that can be had: the
// embedded one always, a real Nomad where it is on PATH, with ACLs in one variant. Each
// start of an agent runs the plugin three times (NMD-01), and one of them dies with all that
// runs below it (NMD-14).
func TestAcc(t *testing.T) {
	needDesktop(t)
	variants := []struct {
		name  string
		start func(t *testing.T) *agent
		tests []acceptance
	}{
		{"embedded", func(t *testing.T) *agent { return newEmbedded(t) }, append(everywhere, embeddedOnly...)},
		{"nomad", func(t *testing.T) *agent { return newNomad(t, false) }, append(slices.Clone(everywhere), nomadOnly...)},
		{"nomad with ACLs", func(t *testing.T) *agent { return newNomad(t, true) }, append(underACLs, aclOnly...)},
	}
	for _, v := range variants {
		t.Run(strings.ReplaceAll(v.name, " ", "_"), func(t *testing.T) {
			var a *agent
			if !t.Run("agent", func(t *testing.T) { record(t, "the agent starts", v.name) }) {
				return
			}
			a = v.start(t)
			for _, test := range v.tests {
				t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
					record(t, test.name, v.name)
					test.run(t, a)
				})
			}
		})
	}
}

// acceptance is one test of the suite.
type acceptance struct {
	name string
	run  func(t *testing.T, a *agent)
}

var everywhere = []acceptance{
	{"the example job", exampleJob},
	{"job to desktop to stop", jobToStop},
	{"bad input is refused with all faults", badInput},
	{"the memory floor refuses recoverably", memoryFloor},
	{"plugin killed", pluginKilled},
	{"supervisor killed", supervisorKilled},
	{"session killed", sessionKilled},
	{"the lease outlives supervisor and screen", leaseOutlives},
	{"an unused desktop sleeps and wakes", sleepsAndWakes},
	{"one browser, whoever asks first", oneBrowser},
	{"a login moves to another bot", movedLogin},
	{"file dialogs open in the home, downloads land there", fileDialogs},
	{"a profile is removed from its node", profileRemoved},
	{"a VNC program watches, takes and hands back", viewed},
	{"an agent uses its screen by MCP", usedByMCP},
	{"an agent drives the browser over CDP", drivenOverCDP},
	{"a person opens the browser first", personFirst},
	{"what the agent left in a page ends", leftInPages},
	{"a VNC program on a port with a password", viewedOnAPort},
	{"two people in browsers, one takes over", takenOverInBrowsers},
	{"a program takes the focus from a person", focusStolen},
	{"tickets at the viewer listener", ticketsAtTheListener},
	{"a ticket without a listener", noListener},
	{"the end of a view in words", endsInWords},
	{"hostile words stay words", hostileWords},
	{"twenty starts at once", twentyAtOnce},
	{"placement explained", placementExplained},
	{"bad job files", badJobFiles},
	{"official client: exec", clientExec},
	{"official client: logs", clientLogs},
	{"official client: blocking queries and stop", clientBlocking},
	{"official client: variables", clientVariables},
	{"alloc restart, signal and stats", allocCalls},
	{"agent stopped and started with three desktops", func(t *testing.T, a *agent) { agentRestart(t, a, syscall.SIGTERM) }},
	{"agent killed and started with three desktops", func(t *testing.T, a *agent) { agentRestart(t, a, syscall.SIGKILL) }},
	{"agent killed in the middle of a start", killedMidStart},
	{"agent killed with everything below it", unitKilled},
}

// underACLs are those whose outcome could depend on who asks.
var underACLs = []acceptance{
	{"the example job", exampleJob},
	{"job to desktop to stop", jobToStop},
	{"official client: exec", clientExec},
	{"bad job files", badJobFiles},
}

// exampleJob runs the file the README shows, unchanged.
func exampleJob(t *testing.T, a *agent) {
	a.must(t, "run", "../examples/nomad/desktop.nomad.hcl")
	defer a.must(t, "stop", "researcher")
	if width, height := screenshot(t, a, "researcher"); width != 1440 || height != 900 {
		t.Fatalf("picture of %dx%d", width, height)
	}
}

// screenshot takes a picture and checks that a desktop is on it: a panel across the top
// and a wallpaper that is not one colour. Ready means that the panel has painted itself
// once (S6); on a busy machine what stands on it comes a moment later, so a picture
// without text is taken again.
func screenshot(t *testing.T, a *agent, profile string) (width, height int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		img := picture(t, a, profile)
		width, height = img.Bounds().Dx(), img.Bounds().Dy()
		down, across := map[color.Color]bool{}, map[color.Color]bool{}
		for y := range height {
			down[img.At(width/3, y)] = true
		}
		for x := range width {
			across[img.At(x, 12)] = true
		}
		if len(down) < 30 {
			t.Errorf("%d colours from top to bottom: no wallpaper", len(down))
		}
		if len(across) >= 10 {
			return width, height
		}
		if time.Now().After(deadline) {
			t.Errorf("%d colours across the top: no panel with text", len(across))
			return width, height
		}
	}
}

func picture(t *testing.T, a *agent, profile string) image.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "screen.png")
	a.must(t, "screenshot", "-o", path, profile)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func jobToStop(t *testing.T, a *agent) {
	job := a.job(t, "walker", `command = "sh"`, `args = ["-c", "echo the program says hello"]`)
	a.must(t, "run", job)
	s := a.status(t, "walker")
	if s.Supervisor == nil || s.Supervisor.State != "ready" || !strings.HasPrefix(s.Supervisor.Display, ":2") {
		t.Fatalf("status %+v", s)
	}
	a.eventually("enforced fence", func() bool { return a.status(t, "walker").Supervisor.Fence.Mode == "enforced" })
	screenshot(t, a, "walker")
	if r := a.botscreen(t, "exec", "walker", "sh", "-c", "echo out; echo err >&2; exit 43"); r.code != 43 || r.stdout != "out\n" || !strings.Contains(r.stderr, "err\n") {
		t.Errorf("exec: %s", r)
	}
	if r := a.botscreen(t, "exec", "walker", "--", "sh", "-c", "echo $XAUTHORITY"); !strings.HasSuffix(r.stdout, ".untrusted\n") {
		t.Errorf("exec's display: %s", r)
	}
	if r := a.botscreen(t, "exec", "--gui", "walker", "sh", "-c", "echo $XAUTHORITY"); r.code != 0 || !strings.HasSuffix(r.stdout, "/Xauthority\n") {
		t.Errorf("exec --gui's display: %s", r)
	}
	if r := a.botscreen(t, "exec", "walker", "no-such-program"); r.code != 127 {
		t.Errorf("exec of nothing: %s", r)
	}
	a.eventually("the program's line in the log", func() bool {
		return strings.Contains(a.botscreen(t, "logs", "walker").stdout, "the program says hello")
	})
	for _, word := range []string{"walker", s.Screen.Alloc[:8]} { // profile or job, alloc
		if out := a.must(t, "status", word); !strings.Contains(out, "ready") {
			t.Errorf("status %s: %s", word, out)
		}
	}
	// D7: the first X server of a node must not come to own the directory of all sockets.
	if info, err := os.Stat("/tmp/.X11-unix"); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("/tmp/.X11-unix: %v, %v", info, err)
	}
	p := only(t, a)
	a.must(t, "stop", "--purge", "walker")
	if left := screens(a); len(left) > 0 { // Nomad has forgotten the allocation by now
		t.Errorf("stopped, there is %v", left)
	}
	gone(t, a)
	if p.xserver.pid == 0 || len(xservers(a)) != 0 {
		t.Errorf("X server %+v", p.xserver)
	}
	if r := a.botscreen(t, "status", "no-such-screen"); r.code != 3 {
		t.Errorf("status of nothing: %s", r)
	}
}

// gone waits until nothing of any screen of the agent is left but homes and records.
func gone(t *testing.T, a *agent) {
	t.Helper()
	a.eventually("end of every process", func() bool { return len(screens(a)) == 0 && len(supervisors(a)) == 0 })
	a.eventually("end of every run directory", func() bool {
		left, err := os.ReadDir(filepath.Join(a.dir, "run"))
		return errors.Is(err, os.ErrNotExist) || err == nil && len(left) == 1 && left[0].Name() == "node"
	})
}

func badInput(t *testing.T, a *agent) {
	for name, tc := range map[string]struct {
		config []string
		want   []string
	}{
		"several": {
			[]string{`isolation = "chroot"`, `geometry = "0x0"`, `min_free_memory_mb = -5`, `profile = "../etc"`},
			[]string{"isolation:", "geometry:", "min_free_memory_mb:", "profile:", "4 faults"},
		},
		"huge geometry": {[]string{`geometry = "99999x99999"`}, []string{"geometry:"}},
		"slash":         {[]string{`profile = "a/b"`}, []string{"profile:"}},
		"no profile":    {[]string{`profile = ""`}, []string{"profile: is required"}},
		"unknown key":   {[]string{`colour = "red"`}, []string{"colour"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			path := a.job(t, "faulty")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			job := string(text)
			for _, line := range tc.config { // an option is given once: replace the default line
				key, _, _ := strings.Cut(line, " ")
				job = replaceLine(job, key, line)
			}
			writeFile(t, path, strings.Replace(job, `attempts = 3`, `attempts = 0`, 1))
			r := a.botscreen(t, "run", path)
			defer a.botscreen(t, "stop", "faulty")
			if r.code != 4 {
				t.Fatalf("run: %s", r)
			}
			for _, want := range tc.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("no %q in %s", want, r.stderr)
				}
			}
			if len(screens(a)) != 0 {
				t.Error("something was started")
			}
		})
	}
}

// replaceLine puts line in the place of the config line for key, or adds it.
func replaceLine(job, key, line string) string {
	lines := strings.Split(job, "\n")
	for i, old := range lines {
		if fields := strings.Fields(old); len(fields) > 1 && fields[0] == key && fields[1] == "=" {
			lines[i] = line
			return strings.Join(lines, "\n")
		}
	}
	return strings.Replace(job, "config {", "config {\n"+line, 1)
}

func memoryFloor(t *testing.T, a *agent) {
	path := a.job(t, "hungry")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job := replaceLine(string(text), "min_free_memory_mb", "min_free_memory_mb = 99999999")
	writeFile(t, path, strings.Replace(job, "attempts = 3", "attempts = 1", 1))
	r := a.botscreen(t, "run", path)
	defer a.botscreen(t, "stop", "hungry")
	all := r.stdout + r.stderr
	if r.code != 4 || !strings.Contains(all, "Not enough memory to start a desktop") || !strings.Contains(all, "99999999 MB asked for by `min_free_memory_mb`") {
		t.Fatalf("run: %s", r)
	}
	if !strings.Contains(all, "Restarting") {
		t.Errorf("the refusal was not recoverable: %s", r)
	}
}

func pluginKilled(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "survivor"))
	defer a.must(t, "stop", "survivor")
	before := only(t, a)
	old := plugins(a)
	if len(old) != 1 {
		t.Fatalf("plugins %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("another plugin", func() bool { now := plugins(a); return len(now) == 1 && now[0].pid != old[0].pid })
	a.eventually("exec through it", func() bool { return a.botscreen(t, "exec", "survivor", "true").code == 0 })
	if after := only(t, a); after.xserver.pid != before.xserver.pid || after.session.pid != before.session.pid {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if s := a.status(t, "survivor"); s.Supervisor == nil || s.Supervisor.State != "ready" {
		t.Errorf("status %+v", s)
	}
	screenshot(t, a, "survivor")
	// An agent that asked for the driver while it was away does so again seconds later, and its
	// server hears of it later still; until then nothing is placed here.
	a.awaitNode()
}

func supervisorKilled(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "adopted"))
	defer a.must(t, "stop", "adopted")
	before := only(t, a)
	old := supervisors(a)
	if len(old) != 1 {
		t.Fatalf("supervisors %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("another supervisor", func() bool { now := supervisors(a); return len(now) == 1 && now[0].pid != old[0].pid })
	a.eventually("the adoption", func() bool {
		s := a.status(t, "adopted")
		return s.Supervisor != nil && s.Supervisor.State == "ready"
	})
	if after := only(t, a); after.xserver.pid != before.xserver.pid {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	screenshot(t, a, "adopted")
}

func sessionKilled(t *testing.T, a *agent) {
	path := a.job(t, "victim")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(string(text), "attempts = 3", "attempts = 0", 1))
	a.must(t, "run", path)
	defer a.botscreen(t, "stop", "victim")
	before := only(t, a)
	if err := syscall.Kill(before.session.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, a)
	alloc := a.onlyAlloc(t, "victim")
	a.eventually("the task's failure", func() bool { return a.allocStatus(t, alloc) == "failed" })
	events := a.events(t, alloc, "victim")
	if !strings.Contains(events, "session process") {
		t.Errorf("events do not say why: %s", events)
	}
}

func twentyAtOnce(t *testing.T, a *agent) {
	if testing.Short() {
		t.Skip("twenty desktops take a while")
	}
	const count = 20
	path := a.job(t, "crowd")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job := replaceLine(string(text), "profile", `profile = "crowd-${NOMAD_ALLOC_INDEX}"`)
	writeFile(t, path, strings.Replace(job, `group "desk" {`, "group \"desk\" {\n    count = 20", 1))
	a.must(t, "run", path)
	displays := map[string]bool{}
	for _, s := range screens(a) {
		displays[s.xserver.words[1]] = true
	}
	if len(displays) != count || len(supervisors(a)) != count {
		t.Errorf("%d displays, %d supervisors", len(displays), len(supervisors(a)))
	}
	if _, _, err := a.client().Jobs().Deregister("crowd", true, nil); err != nil {
		t.Fatal(err)
	}
	gone(t, a)
}

// agentRestart: the desktops of before are those of after, whatever ended the agent. Each
// start of an agent runs the plugin three times, twice to throw it away (NMD-01).
func agentRestart(t *testing.T, a *agent, sig syscall.Signal) {
	names := []string{"one", "two", "three"}
	for _, name := range names {
		a.must(t, "run", a.job(t, name))
	}
	before := xservers(a)
	allocs := map[string]string{}
	for _, name := range names {
		allocs[name] = a.onlyAlloc(t, name)
	}
	a.end(sig)
	a.start()
	a.awaitNode()
	for _, name := range names {
		a.eventually("exec in "+name, func() bool { return a.botscreen(t, "exec", name, "true").code == 0 })
		if alloc := a.onlyAlloc(t, name); alloc != allocs[name] {
			t.Errorf("%s: allocation %s became %s", name, allocs[name], alloc)
		}
		if status := a.allocStatus(t, allocs[name]); status != "running" {
			t.Errorf("%s is %s", name, status)
		}
	}
	after := xservers(a)
	if len(after) != len(before) {
		t.Errorf("X servers %v became %v", before, after)
	}
	for hash, x := range before {
		if after[hash] != x {
			t.Errorf("X server %s became %s", x, after[hash])
		}
	}
	// Events go on: what happens now is told.
	if err := syscall.Kill(supervisors(a)[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("an event after the restart", func() bool {
		for _, name := range names {
			if strings.Contains(a.events(t, allocs[name], name), "new supervisor") {
				return true
			}
		}
		return false
	})
	for _, name := range names {
		a.must(t, "stop", name)
	}
	gone(t, a)
}

// unitKilled ends the agent as systemd does by default, with every process below it
// (NMD-14). The loss is told, and the screen starts anew with its home.
func unitKilled(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "unit"))
	defer a.must(t, "stop", "unit")
	alloc := a.onlyAlloc(t, "unit")
	a.must(t, "exec", "unit", "sh", "-c", "echo kept > ~/marker")
	before := only(t, a)
	doomed := append(append(plugins(a), supervisors(a)...), before.session)
	a.end(syscall.SIGKILL)
	for _, p := range doomed { // the desktop goes with its session at the latest in recovery
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	a.start()
	a.awaitNode()
	a.eventually("the next run of the screen", func() bool {
		all := screens(a)
		for _, s := range all {
			return len(all) == 1 && s.session.pid != 0 && s.session.pid != before.session.pid && a.botscreen(t, "exec", "unit", "true").code == 0
		}
		return false
	})
	a.eventually("the event of the loss", func() bool { // a client tells the server of its events a little later
		return strings.Contains(a.events(t, alloc, "unit"), "killed from outside or crashed")
	})
	if out := a.must(t, "exec", "unit", "sh", "-c", "cat ~/marker"); out != "kept\n" {
		t.Errorf("the home has %q", out)
	}
	if n := len(xservers(a)); n != 1 {
		t.Errorf("%d X servers", n)
	}
}
