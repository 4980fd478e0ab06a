// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// held is what `botscreen lease SCREEN --json` says.
type held struct {
	Holder string    `json:"holder"`
	Viewer string    `json:"viewer"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	Epoch  uint64    `json:"epoch"`
	You    bool      `json:"you"`
}

// leaseBy runs a command that prints a lease.
func leaseBy(t *testing.T, a *agent, args ...string) held {
	t.Helper()
	var l held
	out := a.must(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatalf("%v is not JSON: %v\n%s", args, err, out)
	}
	return l
}

// agentRefused checks that nothing shows the agent the screen that a person holds.
func agentRefused(t *testing.T, a *agent, profile string) {
	t.Helper()
	picture := filepath.Join(t.TempDir(), "refused.png")
	for code, args := range map[int][]string{1: {"screenshot", "-o", picture, profile}, 126: {"exec", "-T", profile, "true"}} {
		if r := a.botscreen(t, args...); r.code != code || !strings.Contains(r.stderr, "A person has controlled this screen since") &&
			!strings.Contains(r.stderr, "left without handing it back") {
			t.Errorf("%v: %s", args, r)
		}
	}
	if _, err := os.Stat(picture); err == nil {
		t.Error("a picture was written")
	}
}

// execUntilTaken is a command inside the screen that runs; what it says at its end comes
// on the channel.
func execUntilTaken(t *testing.T, a *agent, profile string) (ended chan result) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, "botscreen"), "exec", "-T", profile, "sh", "-c", "echo up; exec sleep 1000")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "NOMAD_ADDR=" + a.addr, "NOMAD_TOKEN=" + a.token}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // open for as long as it runs
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "up\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	ended = make(chan result, 1)
	go func() {
		_ = cmd.Wait()
		_ = stdin.Close()
		ended <- result{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	}()
	return ended
}

// leaseOutlives takes a screen, and finds it taken after the supervisor was killed and
// after its job was stopped and started (rules L3, L6, L11, X20).
func leaseOutlives(t *testing.T, a *agent) {
	path := a.job(t, "taken")
	a.must(t, "run", path)
	defer a.botscreen(t, "stop", "--force", "taken")
	first := leaseBy(t, a, "lease", "taken")
	if first.Holder != "agent" || first.Epoch == 0 || first.You {
		t.Fatalf("a new screen's lease: %+v", first)
	}
	picture := filepath.Join(t.TempDir(), "taken.png")
	a.must(t, "screenshot", "-o", picture, "taken")
	running := execUntilTaken(t, a, "taken")

	mine := leaseBy(t, a, "take", "taken", "--reason", "a captcha")
	if mine.Holder != "human" || mine.Epoch != first.Epoch+1 || !mine.You || len(mine.Viewer) != 12 || mine.Reason != "a captcha" {
		t.Fatalf("%+v became %+v", first, mine)
	}
	secret, err := os.ReadFile(filepath.Join(a.dir, ".local", "state", "botscreen", "viewer"))
	if err != nil {
		t.Fatal(err)
	}
	if r := <-running; r.code != 137 || !strings.Contains(r.stderr, "A person took control of this screen") {
		t.Errorf("a command that ran: %s", r)
	}
	agentRefused(t, a, "taken")
	if r := a.botscreen(t, "exec", "-T", "--force", "taken", "echo", "forced"); r.code != 0 || r.stdout != "forced\n" {
		t.Errorf("exec with force: %s", r)
	}
	if r := a.botscreen(t, "stop", "taken"); r.code != 1 || !strings.Contains(r.stderr, "--force") {
		t.Errorf("stop: %s", r)
	}
	alloc := a.onlyAlloc(t, "taken")
	a.eventually("the event of the take", func() bool {
		return strings.Contains(a.events(t, alloc, "taken"), "A person took control: a captcha")
	})

	same := func(when string) {
		t.Helper()
		l := leaseBy(t, a, "lease", "taken")
		if l.Holder != "human" || l.Viewer != mine.Viewer || l.Epoch != mine.Epoch || !l.Since.Equal(mine.Since) || !l.You {
			t.Fatalf("%s: %+v became %+v", when, mine, l)
		}
		agentRefused(t, a, "taken")
	}
	old := supervisors(a)
	if len(old) != 1 {
		t.Fatalf("supervisors %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("another supervisor", func() bool { now := supervisors(a); return len(now) == 1 && now[0].pid != old[0].pid })
	a.eventually("the adoption", func() bool {
		s := a.status(t, "taken").Supervisor
		return s != nil && s.State == "ready"
	})
	same("after the supervisor was killed")

	a.must(t, "stop", "--force", "taken")
	gone(t, a)
	a.must(t, "run", path)
	same("after a stop and a start")
	if out := a.must(t, "status", "taken"); !strings.Contains(out, "human") || strings.Contains(out, strings.TrimSpace(string(secret))) {
		t.Errorf("status: %s", out)
	}

	at := mine.Epoch
	for _, step := range []struct {
		words  []string
		holder string
		rise   uint64
	}{
		{[]string{"release", "taken"}, "agent", 1},
		{[]string{"release", "taken"}, "agent", 0},
		{[]string{"take", "taken"}, "human", 1},
		{[]string{"take", "taken"}, "human", 0},
		{[]string{"release", "taken", "--force"}, "agent", 1},
	} {
		l := leaseBy(t, a, step.words...)
		if at += step.rise; l.Epoch != at || l.Holder != step.holder {
			t.Fatalf("%v: %+v, want epoch %d of the %s", step.words, l, at, step.holder)
		}
	}
	a.must(t, "screenshot", "-o", picture, "taken")
	alloc = a.onlyAlloc(t, "taken")
	a.eventually("the event of the hand-back", func() bool {
		return strings.Contains(a.events(t, alloc, "taken"), "Control was handed back to the agent")
	})
	var record struct {
		Intact  bool
		Entries []struct{ Act, Door string }
	}
	if err := json.Unmarshal([]byte(a.must(t, "audit", "taken", "--json")), &record); err != nil {
		t.Fatal(err)
	}
	takes := 0
	for _, e := range record.Entries {
		if e.Act == "taken" && e.Door == "exec" {
			takes++
		}
	}
	if !record.Intact || takes != 2 {
		t.Errorf("the audit file: %+v", record)
	}
	a.must(t, "stop", "taken")
	gone(t, a)
}
