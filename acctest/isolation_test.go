// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sandboxes are what a machine can have besides the raw host.
var sandboxes = []struct {
	kind, example, profile string
	config                 func(t *testing.T) string // of the plugin; skips where there is none
	left                   func(t *testing.T, a *agent) string
}{
	{"docker", "../examples/nomad/docker.nomad.hcl", "clerk", dockerConfig, containersLeft},
	{"apptainer", "../examples/nomad/apptainer.nomad.hcl", "archivist", apptainerConfig, mountsLeft},
}

// TestAccIsolation walks a screen of each sandbox through each agent there is: job to
// desktop to takeover to hand-back to stop, and nothing is left.
func TestAccIsolation(t *testing.T) {
	needDesktop(t)
	for _, s := range sandboxes {
		for _, v := range []struct {
			name  string
			start func(t *testing.T, options ...string) *agent
		}{
			{"embedded", newEmbedded},
			{"nomad", func(t *testing.T, options ...string) *agent { return newNomad(t, false, options...) }},
		} {
			t.Run(s.kind+"_"+v.name, func(t *testing.T) {
				config := s.config(t)
				a := v.start(t, config)
				a.isolation = s.kind
				name := s.kind + ": "
				steps := []acceptance{
					{name + "the example job", func(t *testing.T, a *agent) { sandboxedExample(t, a, s.kind, s.example, s.profile) }},
					{name + "a person watches, takes and hands back", func(t *testing.T, a *agent) { watchAndTake(t, a, a.job(t, "boxed"), "boxed") }},
					{name + "an agent acts by MCP", usedByMCP},
					{name + "a person takes over in a browser", takenOverInABrowser},
					{name + "an agent drives the browser over CDP", drivenOverCDP},
					{name + "a person opens the browser first", personFirst},
					{name + "what the agent left in a page ends", leftInPages},
					{name + "one browser, whoever asks first", oneBrowser},
					{name + "a login moves to another bot", movedLogin},
					{name + "a browser outlives the plugin", browserOutlivesPlugin},
					{name + "file dialogs open in the home, downloads land there", fileDialogs},
					{name + "binds of the node are refused", bindsRefused(s.kind)},
					{name + "an image that is not there", missingImage(s.kind)},
				}
				if s.kind == "docker" {
					steps = append(steps,
						acceptance{name + "a moved tag is a decision", movedTag},
						acceptance{name + "a login survives what happens to its container", loginOutlivesContainers},
						acceptance{name + "a login survives a switch of the image", loginOutlivesImages})
				}
				for _, step := range steps {
					t.Run(strings.ReplaceAll(step.name, " ", "_"), func(t *testing.T) {
						record(t, step.name, v.name)
						step.run(t, a)
					})
				}
				if left := s.left(t, a); left != "" {
					t.Errorf("left behind:\n%s", left)
				}
			})
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// dockerConfig is for an engine with the desktop image; scripts/with-engine.sh has one.
func dockerConfig(t *testing.T) string {
	t.Helper()
	endpoint := os.Getenv("BOTSCREEN_TEST_DOCKER")
	if endpoint == "" {
		t.Skip("needs a docker engine: run by scripts/with-engine.sh")
	}
	image := os.Getenv("BOTSCREEN_TEST_IMAGE")
	if image == "" {
		image = "botscreen-desktop:test"
	}
	if out, err := docker(endpoint, "image", "inspect", image); err != nil {
		t.Skipf("needs the image %s: %s", image, out)
	}
	return fmt.Sprintf("default_image = %q\ndocker {\n  endpoint = %q\n}", image, endpoint)
}

func docker(endpoint string, args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+endpoint)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// apptainerConfig is for the desktop image as a directory.
func apptainerConfig(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("apptainer")
	if err != nil {
		t.Skip("needs apptainer, and there is none on PATH")
	}
	root := os.Getenv("BOTSCREEN_TEST_ROOT")
	if root == "" {
		t.Skip("needs a directory with a desktop: run by scripts/with-engine.sh, or BOTSCREEN_TEST_ROOT names one")
	}
	dirs := []string{filepath.Dir(root)}
	if browser := os.Getenv("BOTSCREEN_TEST_BROWSER_ROOT"); browser != "" {
		dirs = append(dirs, filepath.Dir(browser))
	}
	return fmt.Sprintf("default_image = %q\napptainer {\n  path = %q\n  image_dirs = [\"%s\"]\n}", root, path, strings.Join(dirs, `", "`))
}

func containersLeft(t *testing.T, a *agent) string {
	out, err := docker(os.Getenv("BOTSCREEN_TEST_DOCKER"), "ps", "--all", "--quiet", "--filter", "label=botscreen.owner="+filepath.Join(a.dir, "state"))
	if err != nil {
		t.Error(out)
	}
	return out + mountsLeft(t, a)
}

func mountsLeft(t *testing.T, a *agent) string {
	var found strings.Builder
	for line := range strings.Lines(readFile(t, "/proc/self/mountinfo")) {
		if strings.Contains(line, filepath.Join(a.dir, "run")) {
			found.WriteString(line)
		}
	}
	for _, group := range screenGroups(t, "*") {
		for _, s := range []string{"boxed", "clerk", "archivist"} {
			if strings.Contains(group, s) {
				found.WriteString(group + "\n")
			}
		}
	}
	return found.String()
}

// sandboxedExample runs an example file, unchanged: it is a desktop, in the isolation it
// asks for, whose fence holds and whose bind is there.
func sandboxedExample(t *testing.T, a *agent, kind, example, profile string) {
	a.must(t, "run", example)
	defer a.botscreen(t, "stop", "--force", profile)
	if width, height := screenshot(t, a, profile); width != 1440 || height != 900 {
		t.Errorf("picture of %dx%d", width, height)
	}
	out := a.must(t, "status", profile)
	if !strings.Contains(out, kind) {
		t.Errorf("status does not name the isolation: %s", out)
	}
	a.eventually("the fence to be enforced", func() bool {
		s := a.status(t, profile).Supervisor
		return s != nil && s.Fence.Mode == "enforced"
	})
	who := a.must(t, "exec", "-T", profile, "sh", "-c", "id -u; ls -d /task; ls /alloc "+a.dir+"/data 2>/dev/null; env | grep -i -e token -e secret; true")
	lines := strings.Fields(who)
	if len(lines) != 2 || lines[0] == "0" || lines[1] != "/task" {
		t.Errorf("inside: %q", who)
	}
	a.must(t, "exec", "-T", profile, "sh", "-c", "echo kept > ~/marker")
	a.must(t, "stop", profile)
	gone(t, a)
	a.must(t, "run", example) // DOC-11: another sandbox, the same home
	if out := a.must(t, "exec", "-T", profile, "sh", "-c", "cat ~/marker"); out != "kept\n" {
		t.Errorf("the home has %q", out)
	}
	a.must(t, "stop", profile)
	gone(t, a)
}

// bindsRefused: what a job may not see of the node is refused before anything starts,
// with the field and the option that would allow it (X4).
func bindsRefused(kind string) func(t *testing.T, a *agent) {
	field := map[string]string{"docker": "docker.volumes", "apptainer": "apptainer.binds"}[kind]
	option := strings.TrimPrefix(field, kind+".")
	return func(t *testing.T, a *agent) {
		path := a.job(t, "nosy", kind+` { `+option+` = ["/etc:/host", "local:/fine"] }`)
		r := a.botscreen(t, "run", path)
		defer a.botscreen(t, "stop", "nosy")
		if said := r.stdout + r.stderr; r.code == 0 || !strings.Contains(said, field) || !strings.Contains(said, "volumes { enabled") || strings.Contains(said, "/fine") {
			t.Errorf("%s", r)
		}
	}
}

// missingImage: the task's event says which image is missing, and nothing is on the host.
func missingImage(kind string) func(t *testing.T, a *agent) {
	name := map[string]string{"docker": "127.0.0.1:1/none/desk:1", "apptainer": "none.sif"}[kind]
	return func(t *testing.T, a *agent) {
		path := a.job(t, "imageless", fmt.Sprintf("image = %q", name))
		writeFile(t, path, strings.Replace(readFile(t, path), "attempts = 3", "attempts = 0", 1))
		r := a.botscreen(t, "run", path)
		defer a.botscreen(t, "stop", "imageless")
		if said := r.stdout + r.stderr; r.code == 0 || !strings.Contains(said, name) || !strings.Contains(said, "image") {
			t.Errorf("%s", r)
		}
		if left := screens(a); len(left) > 0 {
			t.Errorf("started %v", left)
		}
	}
}

// imageState is what `botscreen image` says as JSON.
type imageState struct {
	Runs, Next, Latest string
	Kept               bool
}

func imageBy(t *testing.T, a *agent, code int, args ...string) imageState {
	t.Helper()
	r := a.botscreen(t, append(append([]string{"image"}, args...), "--json")...)
	var s imageState
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || r.code != code {
		t.Fatalf("image %v: %v %s", args, err, r)
	}
	return s
}

// movedTag: a tag that moves changes no screen, not even at its next start; check says
// that there is a decision to make, keep is one and switch is the other, after which home
// and logins are there still (P5).
func movedTag(t *testing.T, a *agent) {
	endpoint, tag := os.Getenv("BOTSCREEN_TEST_DOCKER"), fmt.Sprintf("127.0.0.1:1/acctest-%d/desk:1", os.Getpid()) // of a registry that is away
	must := func(args ...string) string {
		t.Helper()
		out, err := docker(endpoint, args...)
		if err != nil {
			t.Fatalf("docker %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	base := os.Getenv("BOTSCREEN_TEST_IMAGE")
	if base == "" {
		base = "botscreen-desktop:test"
	}
	must("tag", base, tag)
	t.Cleanup(func() { _, _ = docker(endpoint, "rmi", tag) })
	first := must("image", "inspect", "--format", "{{.Id}}", tag)
	path := a.job(t, "moved", fmt.Sprintf("image = %q", tag))
	a.must(t, "run", path)
	defer a.botscreen(t, "stop", "--force", "moved")
	a.must(t, "exec", "-T", "moved", "sh", "-c", "echo kept > ~/marker")
	if s := imageBy(t, a, 0, "check", "moved"); s.Runs != first || s.Next != first || s.Latest != first {
		t.Errorf("at first: %+v, the image is %s", s, first)
	}

	container := must("create", tag, "true")
	second := must("commit", "--change", "LABEL moved=yes", container, tag)
	must("rm", container)
	if s := imageBy(t, a, 1, "check", "moved"); s.Runs != first || s.Next != first || s.Latest != second {
		t.Errorf("the tag has moved to %s: %+v", second, s)
	}
	if s := imageBy(t, a, 0, "keep", "moved"); !s.Kept || s.Next != first {
		t.Errorf("kept: %+v", s)
	}
	imageBy(t, a, 0, "check", "moved")
	a.must(t, "stop", "moved")
	gone(t, a)
	a.must(t, "run", path)
	if out := a.must(t, "image", "ls"); !strings.Contains(out, "moved") || !strings.Contains(out, first[:19]) {
		t.Errorf("after a start: %s", out)
	}
	a.must(t, "take", "moved")
	if r := a.botscreen(t, "image", "switch", "moved"); r.code == 0 || !strings.Contains(r.stderr, "A person") {
		t.Errorf("switched under a person: %s", r)
	}
	a.must(t, "release", "moved")
	if s := imageBy(t, a, 0, "switch", "moved"); s.Next != second || s.Runs != first {
		t.Errorf("switched: %+v", s)
	}
	a.eventually("the screen on its new image", func() bool {
		var s imageState
		r := a.botscreen(t, "image", "check", "moved", "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &s) == nil && s.Runs == second
	})
	if out := a.must(t, "exec", "-T", "moved", "sh", "-c", "cat ~/marker"); out != "kept\n" {
		t.Errorf("the home has %q", out)
	}
	failedSwitch(t, a, tag, second, must)
	a.must(t, "stop", "moved")
	gone(t, a)
}

// failedSwitch: a switch whose pull fails says so, touches nothing that runs, and the next
// start takes what was decided before (P5).
func failedSwitch(t *testing.T, a *agent, tag, decided string, must func(args ...string) string) {
	other := strings.TrimSuffix(tag, ":1") + ":kept"
	must("tag", tag, other)
	t.Cleanup(func() { _, _ = docker(os.Getenv("BOTSCREEN_TEST_DOCKER"), "rmi", other) })
	must("rmi", tag)
	before := xservers(a)
	r := a.botscreen(t, "image", "switch", "moved")
	if r.code == 0 || !strings.Contains(r.stderr, tag) || !strings.Contains(r.stderr, "could not be pulled") || !strings.Contains(r.stderr, "what runs now is not touched") {
		t.Errorf("a switch whose pull fails: %s", r)
	}
	if after := xservers(a); len(before) != 1 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("X servers before %v and after %v", before, after)
	}
	if out := a.must(t, "exec", "-T", "moved", "sh", "-c", "cat ~/marker"); out != "kept\n" {
		t.Errorf("the home has %q", out)
	}
	a.must(t, "stop", "moved")
	gone(t, a)
	a.must(t, "run", a.job(t, "moved", fmt.Sprintf("image = %q", tag)))
	if out := a.must(t, "image", "ls"); !strings.Contains(out, decided[:19]) {
		t.Errorf("the next start takes another image than %s: %s", decided, out)
	}
}

// takenOverInABrowser: the page shows a screen of a sandbox, and who takes it there has it.
func takenOverInABrowser(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "shown"))
	defer a.botscreen(t, "stop", "--force", "shown")
	ann := newBrowser(t)
	ann.watch(viewInBrowser(t, a, "ann", "shown"))
	ann.take("a look")
	agentRefused(t, a, "shown")
	if r := a.botscreen(t, "release", "--force", "shown"); r.code != 0 {
		t.Errorf("release: %s", r)
	}
	ann.until("the words of the hand-back", `document.getElementById("holder").innerText === "The agent controls this screen."`)
	a.must(t, "stop", "shown")
	gone(t, a)
}
