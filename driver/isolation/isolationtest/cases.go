// SPDX-License-Identifier: MPL-2.0

package isolationtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
)

type execResult struct {
	control.ExecResult
	out, err string
}

// run runs a command to its end.
func (r *rig) run(t *testing.T, req control.ExecRequest, input io.Reader) execResult {
	t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	stream, err := r.client.Exec(ctx, req)
	must(t, err)
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	go func() {
		in := stream.Stdin()
		_, _ = io.Copy(in, input)
		_ = in.Close()
	}()
	var out, trouble bytes.Buffer
	result, err := stream.Copy(&out, &trouble)
	must(t, err)
	return execResult{result, out.String(), trouble.String()}
}

func (r *rig) shell(t *testing.T, script string) execResult {
	t.Helper()
	return r.run(t, control.ExecRequest{Argv: []string{"sh", "-c", script}}, strings.NewReader(""))
}

// X29, X30: what runs inside has the ids of the order and no others, no capability, a
// name, and a home that is the profile's.
func testIdentity(t *testing.T, r *rig) {
	uid := r.order.Account.UID
	for script, want := range map[string]string{
		"id -u; id -g; id -G; id -un":                 fmt.Sprintf("%d\n%d\n%d\nscreen\n", uid, uid, uid),
		"grep CapEff /proc/self/status":               "CapEff:\t0000000000000000\n",
		"echo $FROM_THE_JOB $HOME; cd; pwd":           "yes " + r.order.Home + "\n" + r.order.Home + "\n",
		"echo kept > ~/marker; stat -c %u ~/marker":   fmt.Sprintln(uid),
		"touch '" + quoted(r.order.DialDir) + "/x'":   "",
		"ls -d /var/run/docker.sock /run/docker.sock": "",
	} {
		if got := r.shell(t, script); got.out != want {
			t.Errorf("%s: %q, want %q (%s)", script, got.out, want, got.err)
		}
	}
	read := os.ReadFile
	if r.suite.ReadHome != nil {
		read = func(path string) ([]byte, error) { return r.suite.ReadHome(t, r.order, path) }
	}
	if text, err := read(r.order.Home + "/marker"); err != nil || string(text) != "kept\n" {
		t.Errorf("the home is not the profile's: %q %v", text, err) // DOC-11
	}
	if entries, err := os.ReadDir(r.order.DialDir); err != nil || len(entries) != 1 {
		t.Errorf("something was made beside the dial-home socket: %v %v", entries, err)
	}
}

func testInside(t *testing.T, r *rig) {
	for script, want := range r.suite.Inside {
		if got := r.shell(t, script); got.out != want {
			t.Errorf("%s: %q, want %q (%s)", script, got.out, want, got.err)
		}
	}
}

func quoted(path string) string { return strings.ReplaceAll(path, "'", `'\''`) }

func testUsage(t *testing.T, r *rig) {
	ctx, cancel := r.context()
	defer cancel()
	u, err := r.sandbox.Usage(ctx)
	must(t, err)
	if u.Memory == nil || u.Memory.Usage < 1<<20 || u.CPU == nil || u.CPU.Total <= 0 || u.Pids == nil || u.Pids.Current < 5 {
		t.Errorf("a desktop uses %+v %+v %+v", u.Memory, u.CPU, u.Pids)
	}
	if r.sandbox.Record().Piped {
		return // this node sees none of its processes
	}
	running := processesOf(r.order.Account.UID)
	for _, pid := range u.PIDs {
		delete(running, pid)
	}
	if len(u.PIDs) < 5 || len(running) > 0 {
		t.Errorf("%d processes are counted, not among them %v", len(u.PIDs), running)
	}
	if r.sandbox.OOMKilled() {
		t.Error("the kernel killed nothing")
	}
}

func testExec(t *testing.T, r *rig) {
	for name, c := range map[string]struct {
		argv     []string
		out, err string
		code     int
		signal   int
	}{
		"exit code":        {argv: []string{"sh", "-c", "exit 7"}, code: 7},
		"both outputs":     {argv: []string{"sh", "-c", "echo out; echo err >&2"}, out: "out\n", err: "err\n"},
		"a signal":         {argv: []string{"sh", "-c", "kill -TERM $$"}, code: 143, signal: 15},
		"argv is no shell": {argv: []string{"printf", "%s|", "a b", "$HOME", "';", ""}, out: "a b|$HOME|';||"}, // P8
	} {
		got := r.run(t, control.ExecRequest{Argv: c.argv}, strings.NewReader(""))
		if got.out != c.out || got.err != c.err || got.ExitCode != c.code || got.Signal != c.signal {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// DOC-03: a program that reads to the end of its input gets there, every time.
func testEndOfInput(t *testing.T, r *rig) {
	for range 20 {
		got := r.run(t, control.ExecRequest{Argv: []string{"cat"}}, strings.NewReader("abc"))
		if got.out != "abc" || got.ExitCode != 0 {
			t.Fatalf("cat: %+v", got)
		}
	}
}

// testBulk sends and receives 64 MiB at once.
func testBulk(t *testing.T, r *rig) {
	const size = 64 << 20
	ctx, cancel := r.context()
	defer cancel()
	stream, err := r.client.Exec(ctx, control.ExecRequest{Argv: []string{"cat"}})
	must(t, err)
	defer stream.Close()
	sent, received := sha256.New(), sha256.New()
	go func() {
		in := stream.Stdin()
		_, _ = io.Copy(io.MultiWriter(in, sent), io.LimitReader(rand.Reader, size))
		_ = in.Close()
	}()
	count := &counter{}
	result, err := stream.Copy(io.MultiWriter(received, count), io.Discard)
	must(t, err)
	if result.ExitCode != 0 || count.n != size || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		t.Errorf("%d bytes came back, %+v; they have to be the same %d", count.n, result, size)
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

// testTerminal runs a shell on a terminal and changes its size while it runs.
func testTerminal(t *testing.T, r *rig) {
	ctx, cancel := r.context()
	defer cancel()
	stream, err := r.client.Exec(ctx, control.ExecRequest{
		Argv: []string{"sh", "-c", "test -t 0 && stty size; read line; stty size"},
		TTY:  true, Size: &control.TerminalSize{Rows: 31, Cols: 97},
	})
	must(t, err)
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	out := &expecter{want: "31 97", met: make(chan struct{})}
	go func() {
		select {
		case <-out.met:
		case <-ctx.Done():
			return
		}
		_ = stream.Resize(control.TerminalSize{Rows: 44, Cols: 122})
		_, _ = io.WriteString(stream.Stdin(), "\n")
	}()
	result, err := stream.Copy(out, io.Discard)
	must(t, err)
	if !strings.Contains(out.text.String(), "44 122") || result.ExitCode != 0 {
		t.Errorf("%q, %+v", out.text.String(), result)
	}
}

// expecter closes met when it has seen want.
type expecter struct {
	want string
	met  chan struct{}
	seen bool
	text bytes.Buffer
}

func (e *expecter) Write(p []byte) (int, error) {
	e.text.Write(p)
	if !e.seen && strings.Contains(e.text.String(), e.want) {
		e.seen = true
		close(e.met)
	}
	return len(p), nil
}

// testSignal reaches what runs on the desktop; a shell hears it by its trap, and all
// others ignore this one.
func testSignal(t *testing.T, r *rig) {
	ctx, cancel := r.context()
	defer cancel()
	stream, err := r.client.Exec(ctx, control.ExecRequest{
		Argv: []string{"sh", "-c", "trap 'exit 3' WINCH; echo up; while :; do sleep 0.05; done"},
	})
	must(t, err)
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	out := &expecter{want: "up", met: make(chan struct{})}
	sent := make(chan error, 1)
	go func() {
		select {
		case <-out.met:
			sent <- r.client.Signal(ctx, control.SignalRequest{Signal: int(unix.SIGWINCH)})
		case <-ctx.Done():
			sent <- ctx.Err()
		}
	}()
	result, err := stream.Copy(out, io.Discard)
	must(t, err)
	must(t, <-sent)
	if result.ExitCode != 3 {
		t.Errorf("%+v", result)
	}
}

// testCallerLeft: a command ends with its caller, nothing of it stays.
func testCallerLeft(t *testing.T, r *rig) {
	ctx, cancel := r.context()
	defer cancel()
	stream, err := r.client.Exec(ctx, control.ExecRequest{Argv: []string{"sh", "-c", "echo up; exec sleep 86399"}})
	must(t, err)
	out := &expecter{want: "up", met: make(chan struct{})}
	go func() { _, _ = stream.Copy(out, io.Discard) }()
	select {
	case <-out.met:
	case <-ctx.Done():
		t.Fatal("the command says nothing")
	}
	must(t, stream.Close())
	for end := time.Now().Add(limit); strings.Contains(fmt.Sprint(r.processes(t)), ":sleep"); {
		if time.Now().After(end) {
			t.Fatal("the command outlives its caller")
		}
	}
}

// testSupervisorDied: the session dials the next one, and the X server is the same (S11).
func testSupervisorDied(t *testing.T, r *rig) {
	before := xservers(t, r)
	r.endSupervisor(unix.SIGKILL)
	r.supervise(nil)
	r.awaitReady()
	if after := xservers(t, r); len(before) != 1 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("X servers before %v and after %v", before, after)
	}
}

// processes are those of the desktop by pid: on this node, or where it sees none of them
// as they are inside.
func (r *rig) processes(t *testing.T) map[int]string {
	t.Helper()
	if !r.sandbox.Record().Piped {
		return processesOf(r.order.Account.UID)
	}
	found := map[int]string{}
	listed := r.shell(t, `for p in /proc/[0-9]*; do echo "${p#/proc/} $(cat $p/comm)"; done 2>/dev/null`)
	for line := range strings.Lines(listed.out) {
		pid, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(pid); err == nil && name != "" {
			found[n] = name
		}
	}
	return found
}

func xservers(t *testing.T, r *rig) []int {
	t.Helper()
	var pids []int
	for pid, name := range r.processes(t) {
		if strings.HasPrefix(name, "Xvnc") || strings.HasPrefix(name, "Xtigervnc") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// testDriverRestarted: another driver process finds the sandbox by its record (P4).
func testDriverRestarted(t *testing.T, r *rig) {
	old := r.sandbox
	ctx, cancel := r.context()
	defer cancel()
	r.boundary = r.suite.New(t)
	adopted, err := r.boundary.Adopt(ctx, old.Record())
	must(t, err)
	if adopted.Session() != old.Session() || adopted.Record() != old.Record() {
		t.Errorf("adopted %+v, it was %+v", adopted.Record(), old.Record())
	}
	select {
	case <-adopted.Done():
		t.Error("the adopted session counts as ended")
	default:
	}
	// X38: another instance's record is not this sandbox.
	forged := old.Record()
	forged.Instance = NewInstance()
	if stranger, err := r.boundary.Adopt(ctx, forged); err == nil {
		t.Errorf("adopted %+v by a forged instance", stranger.Record())
	}
	r.sandbox = adopted
}

func testStop(t *testing.T, r *rig) {
	ctx, cancel := r.context()
	defer cancel()
	must(t, r.client.Stop(ctx, control.StopRequest{}))
	r.expectEnd()
}

// testStubborn: descendants that ignore TERM, left their session and fork all the time
// die with the sandbox (S9).
func testStubborn(t *testing.T, s Suite, binary string) {
	r := newRig(t, s, binary)
	r.launch()
	r.supervise(r.plan())
	r.awaitReady()
	got := r.shell(t, `
		for i in 1 2 3; do setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 0.05; done' >/dev/null 2>&1 </dev/null & done
		echo up`)
	if got.out != "up\n" {
		t.Fatalf("%+v", got)
	}
	ctx, cancel := r.context()
	defer cancel()
	must(t, r.sandbox.Kill(ctx))
	r.expectEnd()
}

// testGone: a sandbox that was taken away ends, in words where its kind has them (P3).
func testGone(t *testing.T, s Suite, binary string) {
	r := newRig(t, s, binary)
	r.launch()
	r.supervise(r.plan())
	r.awaitReady()
	s.Destroy(t, r.sandbox.Record())
	r.expectEnd()
	ctx, cancel := r.context()
	defer cancel()
	record := r.boundary.Intent(r.order)
	gone, err := r.boundary.Adopt(ctx, record)
	must(t, err)
	select {
	case <-gone.Done():
	case <-ctx.Done():
		t.Fatal("a sandbox that is gone does not count as ended")
	}
	must(t, gone.Kill(ctx))
	must(t, gone.Remove(ctx))
}

// testIntent: what a launch left whose driver died before it wrote its result down is
// found by the intent and ended.
func testIntent(t *testing.T, s Suite, binary string) {
	r := newRig(t, s, binary)
	intent := r.boundary.Intent(r.order)
	r.launch()
	session := r.sandbox.Session()
	ctx, cancel := r.context()
	defer cancel()
	left, err := s.New(t).Adopt(ctx, intent)
	must(t, err)
	must(t, left.Kill(ctx))
	must(t, left.Remove(ctx))
	select {
	case <-r.sandbox.Done():
	case <-ctx.Done():
	}
	if session.Alive() {
		t.Error("the session still runs")
	}
	r.expectEnd()
}
