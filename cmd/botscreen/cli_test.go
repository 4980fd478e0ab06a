// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

func TestMain(m *testing.M) { devagenttest.Main(m) }

// result is what one call of the command gave.
type result struct {
	code      int
	out, errs string
}

// call runs the command against an agent, which it finds by its data directory.
func call(t *testing.T, args ...string) result {
	t.Helper()
	return callIn(t, "", args...)
}

func callIn(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, args, streams{in: strings.NewReader(stdin), out: &out, errs: &errs})
	return result{code, out.String(), errs.String()}
}

// use points the command to an agent and to nothing else.
func use(t *testing.T, dataDir string) {
	t.Helper()
	for _, name := range []string{"NOMAD_ADDR", "NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name)
	}
	t.Setenv(dataDirVariable, dataDir)
}

func startAgent(t *testing.T) *devagenttest.Agent {
	t.Helper()
	a := devagenttest.Start(t)
	use(t, a.DataDir())
	return a
}

// jobFile writes a job file with one screen.
func jobFile(t *testing.T, id, profile, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), id+".nomad.hcl")
	text := `variable "profile" {
  type    = string
  default = "` + profile + `"
}
job "` + id + `" {
  group "g" {
    restart {
      attempts = 0
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "bot" {
      driver = "` + devagenttest.DriverName + `"
      config {
        command = "echo out; echo err >&2; exec sleep 1000"
        labels {
          profile = var.profile
        }
        ` + more + `
      }
      resources {
        cpu    = 10
        memory = 20
      }
    }
  }
}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitReady waits for the driver's word that a screen is ready. For a driver that is
// not botscreen's, run does not.
func awaitReady(t *testing.T, screen string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(call(t, "status", screen).out, "State       ready") {
		if time.Now().After(deadline) {
			t.Fatalf("screen %s is not ready", screen)
		}
	}
}

func (r result) want(t *testing.T, code int, out, errs string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.errs, errs) {
		t.Errorf("code %d\nout:\n%s\nerr:\n%s\nwant code %d, out %q, err %q", r.code, r.out, r.errs, code, out, errs)
	}
}

func TestRunStatusStop(t *testing.T) {
	startAgent(t)
	call(t, "status").want(t, exitOK, "No screens. Start one with `botscreen run JOBFILE`.", "")
	call(t, "run", "-var", "profile=grace", jobFile(t, "desk", "ada", "")).want(t, exitOK, "desk/g/bot is ready (alloc ", "bot  Started: Task started by client")

	awaitReady(t, "grace")
	r := call(t, "status")
	r.want(t, exitOK, "grace\tready\tagent\thost\tdesk/g/bot\t", "")
	var list struct {
		Screens []struct {
			Profile, Job, Alloc, State string
		}
		Waiting []any
	}
	decode(t, call(t, "status", "-json"), &list)
	if len(list.Screens) != 1 || list.Screens[0].Profile != "grace" || list.Screens[0].State != "ready" || list.Waiting == nil {
		t.Errorf("got %+v", list)
	}

	one := call(t, "status", "grace")
	one.want(t, exitOK, "Holder      agent", "")
	one.want(t, exitOK, "Driver: The screen is ready.", "")

	call(t, "exec", "-T", "grace", "--", "sh", "-c", "echo $NOMAD_TASK_NAME; exit 7").want(t, 7, "bot\n", "")
	callIn(t, "typed\n", "exec", "grace", "cat").want(t, exitOK, "typed\n", "")
	for _, args := range [][]string{{"logs", "grace"}, {"logs", "-stderr", "grace"}} {
		for call(t, args...).out == "" && t.Context().Err() == nil {
			// The collector writes it when it has read it.
			continue
		}
	}
	call(t, "logs", "grace").want(t, exitOK, "out\n", "")
	call(t, "logs", "-stderr", "desk").want(t, exitOK, "err\n", "")
	call(t, "logs", "-tail", "2", "desk").want(t, exitOK, "t\n", "")

	picture := filepath.Join(t.TempDir(), "screen.png")
	call(t, "screenshot", "-o", picture, "grace").want(t, exitOK, "Wrote "+picture, "")
	if data, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(data, []byte("\x89PNG")) {
		t.Errorf("picture: %v", err)
	}

	small := filepath.Join(t.TempDir(), "screen.jpg")
	call(t, "screenshot", "--thumbnail", "-o", small, "grace").want(t, exitOK, "Wrote "+small, "")
	if data, err := os.ReadFile(small); err != nil || !bytes.HasPrefix(data, []byte("\xff\xd8")) {
		t.Errorf("thumbnail: %v", err)
	}

	call(t, "stop", "grace").want(t, exitOK, "Stopped desk/g/bot.", "")
	call(t, "status", list.Screens[0].Alloc[:8]).want(t, exitOK, "stopped", "")
	call(t, "exec", "grace", "true").want(t, exitFailed, "", "does not run (stopped)")
}

func decode(t *testing.T, r result, into any) {
	t.Helper()
	if r.code != exitOK {
		t.Fatalf("code %d: %s", r.code, r.errs)
	}
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
}

// A job file with a fault: the file's own name, line and column, and nothing
// registered.
func TestRunBadJobFiles(t *testing.T) {
	a := startAgent(t)
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"unknown-block": {"job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      artifact {}\n    }\n  }\n}\n", ":4,7-15: Unsupported block type; Blocks of type \"artifact\" are not expected"},
		"wrong-type":    {"job \"x\" {\n  priority = \"high\"\n}\n", ":2,14-20: Unsuitable value for priority"},
		"missing-quote": {"job \"x\" {\n  type = \"batch\n}\n", ":2,16-"},
		"no-value":      {"variable \"v\" {\n  type = string\n}\njob \"x\" {}\n", ":1,1-13: Unset variable \"v\""},
		"garbage":       {strings.Repeat("%&/()=?{", 1<<17), ":1,"},
	} {
		path := filepath.Join(dir, name+".nomad.hcl")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := call(t, "run", path)
		r.want(t, exitUsage, "", name+".nomad.hcl"+c.want)
		r.want(t, exitUsage, "", "nothing was submitted")
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, "run", large).want(t, exitUsage, "", "too large")
	call(t, "run", filepath.Join(dir, "nowhere")).want(t, exitUsage, "", "no such file or directory")
	call(t, "run", "-var", "other=1", jobFile(t, "v", "x", "")).want(t, exitUsage, "", "Undefined variable")
	call(t, "run", "-var", "nonsense", jobFile(t, "v", "x", "")).want(t, exitUsage, "", "is not NAME=VALUE")
	if jobs, _, err := a.Client.Jobs().List(nil); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// A job that cannot be placed says why, in Nomad's words, and so does status.
func TestRunWithoutNode(t *testing.T) {
	startAgent(t)
	path := jobFile(t, "big", "ada", "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"memory = 20", "memory = 90000000", `Dimension "memory" exhausted on 1 nodes`},
		{devagenttest.DriverName, "nosuch", `Constraint "missing drivers": 1 nodes excluded by filter`},
	} {
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		call(t, "run", path).want(t, exitNotReady, "", c.want)
		r := call(t, "status")
		r.want(t, exitOK, "Job big, group g waits for a node:\n", "")
		r.want(t, exitOK, c.want, "")
	}
}

func TestRunWithFailedStart(t *testing.T) {
	startAgent(t)
	r := call(t, "run", jobFile(t, "bad", "ada", `fail_start = "fatal"`))
	r.want(t, exitNotReady, "", "Job bad did not come up: Failed tasks.")
	r.want(t, exitNotReady, "", "isolation_refused: docker does not answer on this node")
	call(t, "status").want(t, exitOK, "", "")
}

func TestRunDetachedAndFromStdin(t *testing.T) {
	a := startAgent(t)
	text, err := os.ReadFile(jobFile(t, "in", "ada", ""))
	if err != nil {
		t.Fatal(err)
	}
	callIn(t, string(text), "run", "-detach", "-").want(t, exitOK, "Submitted job in.", "")
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return len(all) == 1 && all[0].ClientStatus == api.AllocClientStatusRunning
	})
	source, _, err := a.Client.Jobs().Submission("in", 0, nil)
	if err != nil || source.Source != string(text) {
		t.Errorf("source %v, %v", source, err)
	}
}

func TestScreensByName(t *testing.T) {
	startAgent(t)
	call(t, "run", jobFile(t, "one", "twin", "")).want(t, exitOK, "", "")
	call(t, "run", jobFile(t, "two", "twin", "")).want(t, exitOK, "", "")
	awaitReady(t, "one/g/bot")
	awaitReady(t, "two/g/bot")
	r := call(t, "stop", "twin")
	r.want(t, exitNotFound, "", `"twin" is 2 screens:`)
	r.want(t, exitNotFound, "", "one/g/bot")
	call(t, "stop", "nobody").want(t, exitNotFound, "", `There is no screen "nobody". There are: twin, twin.`)
	call(t, "stop", "two/g/bot").want(t, exitOK, "Stopped two/g/bot.", "")
	call(t, "stop", "-json", "twin").want(t, exitOK, `"stopped": true`, "")
}

func TestUsage(t *testing.T) {
	use(t, t.TempDir())
	for _, args := range [][]string{{"run"}, {"status", "a", "b"}, {"stop"}, {"nonsense"}, {"run", "-nonsense", "x"}, {"exec", "x", "--"}} {
		if r := call(t, args...); r.code != exitUsage && r.code != exitFailed || r.errs == "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	call(t, "agent").want(t, exitUsage, "", "botscreen agent -dev")
	call(t, "screenshot", "x").want(t, exitUsage, "", "screenshot -o FILE.png SCREEN")
	call(t, "screenshot", "--thumbnail", "-o", "x.png", "x").want(t, exitUsage, "", "FILE.jpg")
	call(t, "screenshot", "--thumbnail", "--scale", "0.5", "-o", "x.jpg", "x").want(t, exitUsage, "", "thumbnail")
	call(t, "--help").want(t, exitOK, "Exit codes:", "")
	call(t, "-version").want(t, exitOK, Version, "")
	call(t, "completion", "bash").want(t, exitOK, "bash completion", "")
}

// Flags are written with one dash or two; behind exec's screen they are the
// command's.
func TestLongFlags(t *testing.T) {
	root := (&cli{}).root()
	for in, want := range map[string]string{
		"agent -dev -bind=x":        "agent --dev --bind=x",
		"run -var a=b -detach f":    "run --var a=b --detach f",
		"status -json":              "status --json",
		"-json status":              "--json status",
		"screenshot -o f x":         "screenshot -o f x",
		"exec -t x ls -json -dev":   "exec -t x ls -json -dev",
		"exec -no-tty x -- y -json": "exec --no-tty x -- y -json",
		"run -- -detach":            "run -- -detach",
		"logs -f x":                 "logs -f x",
		"logs -follow x":            "logs --follow x",
		"stop -foo x":               "stop -foo x",
	} {
		if got := strings.Join(longFlags(root, strings.Fields(in)), " "); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// The token of this machine's agent is sent to a live agent and to nobody else.
func TestTokenGoesToTheAgentOnly(t *testing.T) {
	var mu sync.Mutex
	var tokens []string
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, r.Header.Get("X-Nomad-Token"))
	}))
	defer stranger.Close()
	a := startAgent(t)
	call(t, "status", "-address", stranger.URL)
	t.Setenv("NOMAD_ADDR", stranger.URL)
	call(t, "status")
	t.Setenv("NOMAD_ADDR", "")
	_ = os.Unsetenv("NOMAD_ADDR")
	call(t, "status", "-address", "http://"+a.Addr()).want(t, exitOK, "No screens", "")
	_, port, _ := net.SplitHostPort(a.Addr())
	call(t, "status", "-address", "http://localhost:"+port).want(t, exitOK, "No screens", "")

	// An agent that ended: somebody else may listen on its port now.
	a.Purge(t)
	a.Stop()
	l, err := net.Listen("tcp", a.Addr())
	if err != nil {
		t.Skip(err)
	}
	go func() { _ = http.Serve(l, stranger.Config.Handler) }()
	call(t, "status", "-address", "http://"+a.Addr())
	_ = l.Close()
	for _, token := range tokens {
		if token != "" {
			t.Errorf("the token went to a stranger")
		}
	}
	if len(tokens) == 0 {
		t.Error("the stranger was not asked")
	}
}

func TestNomadErrors(t *testing.T) {
	a := startAgent(t)
	t.Setenv("NOMAD_TOKEN", "wrong")
	call(t, "status").want(t, exitNoNomad, "", "Nomad refused: Permission denied")
	r := call(t, "status", "-json")
	var e struct {
		Error string
		Code  int
	}
	if err := json.Unmarshal([]byte(r.errs), &e); err != nil || e.Code != exitNoNomad || e.Error == "" {
		t.Errorf("got %q, %v", r.errs, err)
	}
	call(t, "status", "-address", "http://127.0.0.1:1").want(t, exitNoNomad, "", "Nomad cannot be reached")
	if strings.Contains(r.errs, "wrong") {
		t.Error("the token is in the error")
	}
	_ = a
}

// X32: what comes from a screen cannot steer the terminal.
func TestUntrustedTextIsHarmless(t *testing.T) {
	hostile := "a\x1b[2Jb\u202ec\rd\u200be\x00f\ng\th\xff"
	if got, want := clean(hostile), "a·[2Jb·c·d·e·f\ng\th·"; got != want {
		t.Errorf("clean: %q, want %q", got, want)
	}
	if got := line(hostile); strings.ContainsAny(got, "\n\t\x1b\r") {
		t.Errorf("line: %q", got)
	}
	// Split anywhere, the stream gives the same.
	text := "é\x1b[31m€\r\nx\rz\u202e€"
	var whole bytes.Buffer
	if _, err := (&cleanWriter{w: &whole}).Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	for i := range len(text) {
		var parts bytes.Buffer
		w := &cleanWriter{w: &parts}
		_, _ = w.Write([]byte(text[:i]))
		_, _ = w.Write([]byte(text[i:]))
		if strings.ReplaceAll(parts.String(), "·\n", "\n") != strings.ReplaceAll(whole.String(), "·\n", "\n") {
			t.Errorf("split at %d: %q, want %q", i, parts.String(), whole.String())
		}
	}
	if regexp.MustCompile(`[\x00-\x08\x0b-\x1f]`).MatchString(whole.String()) {
		t.Errorf("got %q", whole.String())
	}
}
