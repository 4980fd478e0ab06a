// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// onlyAlloc is the job's one allocation that is to run.
func (a *agent) onlyAlloc(t *testing.T, job string) string {
	t.Helper()
	stubs, _, err := a.client().Jobs().Allocations(job, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range stubs {
		if s.DesiredStatus == "run" {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) != 1 {
		t.Fatalf("job %s has allocations %v", job, ids)
	}
	return ids[0]
}

func (a *agent) alloc(t *testing.T, id string) *api.Allocation {
	t.Helper()
	alloc, _, err := a.client().Allocations().Info(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	return alloc
}

func (a *agent) allocStatus(t *testing.T, id string) string {
	t.Helper()
	return a.alloc(t, id).ClientStatus
}

// events are a task's events as text.
func (a *agent) events(t *testing.T, id, task string) string {
	t.Helper()
	state := a.alloc(t, id).TaskStates[task]
	if state == nil {
		return ""
	}
	var all []string
	for _, e := range state.Events {
		all = append(all, e.Type+": "+e.DisplayMessage)
	}
	return strings.Join(all, "\n")
}

// clientExec drives alloc exec with the official client, unchanged.
func clientExec(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "execs"))
	defer a.must(t, "stop", "execs")
	alloc := a.alloc(t, a.onlyAlloc(t, "execs"))
	exec := func(tty bool, stdin io.Reader, sizes chan api.TerminalSize, command ...string) (int, string, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var stdout, stderr bytes.Buffer
		code, err := a.client().Allocations().Exec(ctx, alloc, "execs", tty, command, stdin, &stdout, &stderr, sizes, nil)
		return code, stdout.String(), stderr.String(), err
	}
	if code, out, errs, err := exec(false, strings.NewReader(""), nil, "sh", "-c", "echo out; echo err >&2; exit 43"); code != 43 || out != "out\n" || errs != "err\n" || err != nil {
		t.Errorf("pipes: %d %q %q %v", code, out, errs, err)
	}
	sizes := make(chan api.TerminalSize, 1)
	sizes <- api.TerminalSize{Height: 40, Width: 100}
	if code, out, _, err := exec(true, bytes.NewReader(nil), sizes, "sh", "-c", "sleep 0.5; stty size; exit 7"); code != 7 || !strings.Contains(out, "40 100\r\n") || err != nil {
		t.Errorf("terminal: %d %q %v", code, out, err)
	}
	if code, out, _, err := exec(false, strings.NewReader("abc"), nil, "cat"); code != 0 || out != "abc" || err != nil {
		t.Errorf("stdin: %d %q %v", code, out, err)
	}
	if _, _, _, err := exec(true, strings.NewReader(""), nil, "botscreen:control"); err == nil || !strings.Contains(err.Error(), "terminal") {
		t.Errorf("reserved command on a terminal: %v", err)
	}
	if _, _, _, err := exec(false, strings.NewReader(""), nil, "botscreen:nothing"); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("unknown reserved command: %v", err)
	}
	// 1 MiB each way, unharmed.
	blob := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if code, out, errs, err := exec(false, bytes.NewReader(blob), nil, "cat"); code != 0 || out != string(blob) || err != nil {
		t.Errorf("1 MiB: code %d, %d bytes, %q, %v", code, len(out), errs, err)
	}
}

func clientLogs(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "chatty", `command = "sh"`, `args = ["-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"]`))
	defer a.must(t, "stop", "chatty")
	alloc := a.alloc(t, a.onlyAlloc(t, "chatty"))
	cancel := make(chan struct{})
	frames, errs := a.client().AllocFS().Logs(alloc, true, "chatty", "stdout", "start", 0, cancel, nil)
	defer close(cancel)
	var text strings.Builder
	deadline := time.After(30 * time.Second)
	for !strings.Contains(text.String(), "line 5") {
		select {
		case f := <-frames:
			if f != nil {
				text.Write(f.Data)
			}
		case err := <-errs:
			t.Fatalf("follow: %v", err)
		case <-deadline:
			t.Fatalf("no line 5 in %q", text.String())
		}
	}
	r, err := a.client().AllocFS().Cat(alloc, "alloc/logs/chatty.stdout.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	whole, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(whole), "line 5") {
		t.Errorf("file: %v, %d bytes", err, len(whole))
	}
}

func clientBlocking(t *testing.T, a *agent) {
	client := a.client()
	_, meta, err := client.Jobs().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() {
		_, _, err := client.Jobs().List(&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 30 * time.Second})
		woken <- err
	}()
	a.must(t, "run", a.job(t, "blocker"))
	select {
	case err := <-woken:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the blocking query slept through a registration")
	}
	alloc := a.onlyAlloc(t, "blocker")
	if _, _, err := client.Jobs().Deregister("blocker", true, nil); err != nil {
		t.Fatal(err)
	}
	a.eventually("purge of the job", func() bool {
		_, _, err := client.Jobs().Info("blocker", nil)
		return err != nil && strings.Contains(err.Error(), "404")
	})
	a.eventually("end of the allocation", func() bool {
		info, _, err := client.Allocations().Info(alloc, nil)
		if err != nil { // collected with its job
			return strings.Contains(err.Error(), "alloc not found")
		}
		return info.ClientStatus == "complete"
	})
	gone(t, a)
	if _, _, err := client.Jobs().Info("blocker", nil); err == nil || !strings.Contains(err.Error(), "job not found") {
		t.Errorf("a purged job: %v", err)
	}
}

// clientVariables writes with check-and-set, as records are written.
func clientVariables(t *testing.T, a *agent) {
	vars := a.client().Variables()
	path := "botscreen/profile/acc"
	first, _, err := vars.CheckedUpdate(&api.Variable{Path: path, Items: map[string]string{"a": "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stale := *first
	if _, _, err := vars.CheckedUpdate(&api.Variable{Path: path, ModifyIndex: first.ModifyIndex, Items: map[string]string{"a": "2"}}, nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = vars.CheckedUpdate(&stale, nil)
	var conflict api.ErrCASConflict
	if err == nil || !asConflict(err, &conflict) || conflict.Conflict.Items["a"] != "2" {
		t.Errorf("stale write: %v", err)
	}
	if _, err := vars.CheckedDelete(path, stale.ModifyIndex, nil); err == nil {
		t.Error("stale delete succeeded")
	}
	current, _, err := vars.Read(path, nil)
	if err != nil || current.Items["a"] != "2" {
		t.Fatalf("read %+v, %v", current, err)
	}
	if _, err := vars.CheckedDelete(path, current.ModifyIndex, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := vars.Read(path, nil); err == nil || !strings.Contains(err.Error(), "variable not found") {
		t.Errorf("a deleted variable: %v", err)
	}
}

func asConflict(err error, into *api.ErrCASConflict) bool {
	c, ok := err.(api.ErrCASConflict)
	if ok {
		*into = c
	}
	return ok
}

// allocCalls are the calls on a running allocation besides exec and logs (rule N3).
func allocCalls(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "called", `command = "sh"`, `args = ["-c", "trap 'echo hung up' HUP; echo listening; while :; do sleep 0.2; done"]`))
	defer a.must(t, "stop", "called")
	client := a.client()
	alloc := a.alloc(t, a.onlyAlloc(t, "called"))
	a.eventually("that the command listens", func() bool { return strings.Contains(a.botscreen(t, "logs", "called").stdout, "listening") })
	if err := client.Allocations().Signal(alloc, nil, "called", "SIGHUP"); err != nil {
		t.Errorf("signal: %v", err)
	}
	a.eventually("the signal in the log", func() bool { return strings.Contains(a.botscreen(t, "logs", "called").stdout, "hung up") })
	if err := client.Allocations().Signal(alloc, nil, "called", "SIGBOGUS"); err == nil {
		t.Error("a signal that does not exist was sent")
	}
	a.eventually("stats", func() bool {
		usage, err := client.Allocations().Stats(alloc, nil)
		if err != nil || usage.Tasks["called"] == nil {
			return false
		}
		task := usage.Tasks["called"]
		return task.ResourceUsage.MemoryStats != nil && task.ResourceUsage.MemoryStats.Usage > 10<<20 && len(task.Pids) > 4
	})
	before := only(t, a)
	if err := client.Allocations().Restart(alloc, "called", nil); err != nil {
		t.Fatal(err)
	}
	a.eventually("the restarted screen", func() bool {
		all := screens(a)
		for _, s := range all {
			return len(all) == 1 && s.session.pid != 0 && s.session.pid != before.session.pid && a.botscreen(t, "exec", "called", "true").code == 0
		}
		return false
	})
}

// placementExplained: what cannot be placed waits, with the reason in the evaluation and
// in our status, as Nomad words it.
func placementExplained(t *testing.T, a *agent) {
	for name, tc := range map[string]struct{ change, with, want string }{
		"absent":     {`driver = "botscreen"`, `driver = "nowhere"`, `"missing drivers"`},
		"constraint": {`group "desk" {`, "constraint {\n attribute = \"${attr.kernel.name}\"\n value = \"plan9\"\n }\n group \"desk\" {", "${attr.kernel.name} = plan9"},
		"memory":     {`memory = 300`, `memory = 9000000`, `Dimension "memory" exhausted`},
	} {
		t.Run(name, func(t *testing.T) {
			path := a.job(t, "waits-"+name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, strings.Replace(string(text), tc.change, tc.with, 1))
			a.must(t, "run", "--detach", path)
			defer func() { _, _, _ = a.client().Jobs().Deregister("waits-"+name, true, nil) }()
			a.eventually("the reason in the status", func() bool { return strings.Contains(a.botscreen(t, "status").stdout, tc.want) })
			evals, _, err := a.client().Jobs().Evaluations("waits-"+name, nil)
			if err != nil || len(evals) == 0 {
				t.Fatalf("evaluations %v, %v", evals, err)
			}
			// The job itself reads "running" while its deployment waits: what waits is the group.
			summary, _, err := a.client().Jobs().Summary("waits-"+name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if group := summary.Summary["desk"]; group.Queued != 1 || group.Running+group.Starting+group.Failed != 0 {
				t.Errorf("the group is %+v, want one queued", group)
			}
		})
	}
	t.Run("refused_isolation", func(t *testing.T) {
		path := a.job(t, "sandboxed")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		job := replaceLine(string(text), "isolation", `isolation = "docker"`)
		writeFile(t, path, strings.Replace(job, "attempts = 3", "attempts = 0", 1))
		r := a.botscreen(t, "run", path)
		defer a.botscreen(t, "stop", "sandboxed")
		if r.code != 4 || !strings.Contains(r.stderr, "isolation_refused") || !strings.Contains(r.stderr, "allow_unsandboxed_host") {
			t.Errorf("run: %s", r)
		}
	})
}

// badJobFiles are refused with their place, and nothing is registered.
func badJobFiles(t *testing.T, a *agent) {
	before, _, err := a.client().Jobs().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(a.job(t, "never"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, place string }{
		"unknown block":    {strings.Replace(string(good), `group "desk" {`, "sausage {}\n group \"desk\" {", 1), ":3,"},
		"wrong type":       {strings.Replace(string(good), "attempts = 3", `attempts = "many"`, 1), ":5,"},
		"missing quote":    {strings.Replace(string(good), `driver = "botscreen"`, `driver = "botscreen`, 1), ":15,"},
		"variable unset":   {"variable \"who\" {}\n" + strings.Replace(string(good), `profile            = "never"`, "profile = var.who", 1), "who"},
		"1 MB of garbage":  {strings.Repeat("\x00\x01{[garbage", 100_000), ":1,"},
		"not even a block": {"hello", ":1,"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.nomad.hcl")
			writeFile(t, path, tc.text)
			r := a.botscreen(t, "run", path)
			if r.code == 0 || r.code == 4 {
				t.Fatalf("run: %s", r)
			}
			if !strings.Contains(r.stderr, tc.place) {
				t.Errorf("no place %q in: %.2000s", tc.place, r.stderr)
			}
		})
	}
	after, _, err := a.client().Jobs().List(nil)
	if err != nil || len(after) != len(before) {
		t.Errorf("jobs before %d, after %d, %v", len(before), len(after), err)
	}
}

var embeddedOnly = []acceptance{
	{"X9: who may call the embedded agent", callers},
}

var aclOnly = []acceptance{
	{"no token, no job", func(t *testing.T, a *agent) {
		stranger := *a
		stranger.token = ""
		if r := stranger.botscreen(t, "run", a.job(t, "stranger")); r.code == 0 || !strings.Contains(r.stderr, "403") && !strings.Contains(strings.ToLower(r.stderr), "permission denied") {
			t.Errorf("run without a token: %s", r)
		}
		if _, _, err := a.client().Jobs().Info("stranger", nil); err == nil {
			t.Error("a job was registered without a token")
		}
	}},
}

// callers: no token, a wrong one, a foreign Host and web pages are refused with 403.
func callers(t *testing.T, a *agent) {
	body := `{"Job":{"ID":"intruder","Name":"intruder","Type":"batch","TaskGroups":[]}}`
	for name, change := range map[string]func(r *request){
		"no token":     func(r *request) { delete(r.header, "X-Nomad-Token") },
		"wrong token":  func(r *request) { r.header["X-Nomad-Token"] = "wrong" },
		"foreign host": func(r *request) { r.header["Host"] = "evil.example" },
		"foreign page": func(r *request) { r.header["Origin"] = "http://evil.example" },
		"cross site":   func(r *request) { r.header["Sec-Fetch-Site"] = "cross-site" },
		"text form":    func(r *request) { delete(r.header, "X-Nomad-Token"); r.header["Content-Type"] = "text/plain" },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			r := &request{header: map[string]string{"X-Nomad-Token": a.token, "Content-Type": "application/json"}}
			change(r)
			if status, header := r.post(t, a.addr+"/v1/jobs", body); status != 403 || header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("status %d, headers %v", status, header)
			}
		})
	}
	if _, _, err := a.client().Jobs().Info("intruder", nil); err == nil {
		t.Error("a job was registered")
	}
	page(t, a)
}

func noJob(t *testing.T, a *agent, id string) {
	t.Helper()
	if _, _, err := a.client().Jobs().Info(id, nil); err == nil {
		t.Errorf("job %s was registered", id)
	}
}
