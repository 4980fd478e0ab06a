// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
)

type execResult struct {
	control.ExecResult
	out, err string
}

// run runs a command with the given input to its end.
func (s *supervised) run(req control.ExecRequest, input io.Reader) (execResult, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	stream, err := s.client.Exec(ctx, req)
	if err != nil {
		return execResult{}, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	go func() {
		in := stream.Stdin()
		_, _ = io.Copy(in, input)
		_ = in.Close()
	}()
	var out, trouble bytes.Buffer
	result, err := stream.Copy(&out, &trouble)
	return execResult{result, out.String(), trouble.String()}, err
}

func shell(script string) control.ExecRequest {
	return control.ExecRequest{Argv: []string{"sh", "-c", script}}
}

// TestExec runs commands through API, supervisor and session, on a real desktop; among
// others DOC-03, as every isolation's suite does.
func TestExec(t *testing.T) {
	s := newSupervised(t)
	for name, c := range map[string]struct {
		req      control.ExecRequest
		input    string
		out, err string
		code     int
		signal   int
	}{
		"DOC-03 end of input": {req: control.ExecRequest{Argv: []string{"cat"}}, input: "abc", out: "abc"},
		"DOC-03 exit code":    {req: shell("exit 7"), code: 7},
		"both outputs":        {req: shell("echo out; echo err >&2"), out: "out\n", err: "err\n"},
		"a signal":            {req: shell("kill -TERM $$"), code: 143, signal: 15},
		"the job's variables": {req: shell("echo $FROM_THE_JOB $HOME"), out: "yes " + s.plan.Home + "\n"},
		"variables and folder": {
			req: control.ExecRequest{Argv: []string{"sh", "-c", "echo $A; pwd"}, Env: map[string]string{"A": "b c"}, Dir: "/usr"}, out: "b c\n/usr\n",
		},
		"outputs opened anew":   {req: shell("echo out > /dev/stdout; echo err > /dev/stderr"), out: "out\n", err: "err\n"},
		"input opened anew":     {req: shell("cat /dev/stdin"), input: "abc", out: "abc"},
		"a group of its own":    {req: shell("ps -o pgid= -p $$ | tr -d ' ' | grep -x $$ >/dev/null"), code: 0},
		"no descriptor of ours": {req: control.ExecRequest{Argv: []string{"ls", "/proc/self/fd"}}, out: "0\n1\n2\n3\n"},                         // 3 is what ls reads
		"no ignored signal":     {req: shell("mask=$(sed -n 's/^SigIgn:.//p' /proc/$$/status); printf %x $((0x$mask & ~(7 << 31)))"), out: "0"}, // but the C library's own 32 to 34, which Go cannot change
		"unread input":          {req: shell("exit 3"), input: strings.Repeat("x", 1<<20), code: 3},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.run(c.req, strings.NewReader(c.input))
			must(t, err)
			if got.out != c.out || got.err != c.err || got.ExitCode != c.code || got.Signal != c.signal {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("NMD-21 no such command", func(t *testing.T) {
		for _, argv := range [][]string{{"no-such-command"}, {"/no/such/command"}, {"./no-such"}} {
			_, err := s.run(control.ExecRequest{Argv: argv}, strings.NewReader(""))
			if control.KindOf(err) != control.NotFound {
				t.Errorf("%v: %v, want not_found", argv, err)
			}
		}
	})
	t.Run("no such folder", func(t *testing.T) {
		_, err := s.run(control.ExecRequest{Argv: []string{"true"}, Dir: "/no/such"}, strings.NewReader(""))
		if control.KindOf(err) != control.Refused || !strings.Contains(err.Error(), "/no/such") {
			t.Errorf("got %v, want refused with the folder", err)
		}
	})
	t.Run("not executable", func(t *testing.T) {
		_, err := s.run(control.ExecRequest{Argv: []string{"/etc/passwd"}}, strings.NewReader(""))
		if control.KindOf(err) != control.Refused {
			t.Errorf("got %v, want refused", err)
		}
	})
	t.Run("a MiB each way", func(t *testing.T) {
		data := make([]byte, 1<<20)
		_, _ = rand.Read(data)
		got, err := s.run(control.ExecRequest{Argv: []string{"cat"}}, bytes.NewReader(data))
		must(t, err)
		if got.out != string(data) {
			t.Errorf("%d bytes came back and differ", len(got.out))
		}
	})
	t.Run("terminal", s.testTerminal)
	t.Run("caller gone", s.testCallerGone)
	t.Run("DOC-03 a hundred times", s.testNoLeak)
	t.Run("screenshot", func(t *testing.T) {
		shot, err := s.client.Screenshot(t.Context(), control.ScreenshotRequest{Scale: 0.5})
		must(t, err)
		if !bytes.HasPrefix(shot.Data, []byte("\x89PNG")) {
			t.Errorf("%d bytes that are no PNG", len(shot.Data))
		}
	})
	t.Run("stopped", func(t *testing.T) {
		must(t, s.client.Stop(t.Context(), control.StopRequest{}))
		_, err := s.run(shell("true"), strings.NewReader(""))
		if control.KindOf(err) != control.Gone {
			t.Errorf("NMD-21: exec after the stop: %v, want gone", err)
		}
		exit, err := s.client.Wait(t.Context())
		must(t, err)
		if exit.Code != 0 || s.exitCode() != exitStopped {
			t.Errorf("the screen ended with %+v, the session with %d", exit, s.exitCode())
		}
	})
}

func (s *supervised) testTerminal(t *testing.T) {
	size := &control.TerminalSize{Rows: 33, Cols: 77}
	req := shell(`test -t 0 && test -t 1 && echo $TERM; stty size; trap 'stty size; exit 5' WINCH; echo ready; sleep 60 & wait`)
	req.TTY, req.Size = true, size
	stream, err := s.client.Exec(t.Context(), req)
	must(t, err)
	defer stream.Close()
	r, w := io.Pipe()
	type end struct {
		control.ExecResult
		error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := stream.Copy(w, w)
		_ = w.CloseWithError(err)
		ended <- end{result, err}
	}()
	var seen strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(seen.String(), "ready") {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		must(t, err)
	}
	must(t, stream.Resize(control.TerminalSize{Rows: 44, Cols: 99}))
	rest, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	seen.Write(rest)
	if got := seen.String(); got != "xterm-256color\r\n33 77\r\nready\r\n44 99\r\n" {
		t.Errorf("the terminal showed %q", got)
	}
	if e := <-ended; e.error != nil || e.ExitCode != 5 {
		t.Errorf("ended with %+v", e)
	}

	for _, typed := range []string{"abc\n", "abc"} { // with and without the line's end
		req := control.ExecRequest{Argv: []string{"sh", "-c", "stty -echo; cat"}, TTY: true}
		got, err := s.run(req, strings.NewReader(typed))
		must(t, err)
		if got.ExitCode != 0 || !strings.Contains(got.out, "abc") {
			t.Errorf("typed %q: %+v", typed, got)
		}
	}
}

// A caller that leaves takes the whole process group along.
func (s *supervised) testCallerGone(t *testing.T) {
	for _, tty := range []bool{false, true} {
		req := shell("sleep 12345 & sleep 12345 & echo ready; wait")
		req.TTY = tty
		stream, err := s.client.Exec(t.Context(), req)
		must(t, err)
		_, _ = stream.Copy(stopAtFirst{}, io.Discard)
		_ = stream.Close()
		await(t, "the commands have ended", func() bool {
			for _, name := range processesOf(s.uid) {
				if name == "sleep" {
					return false
				}
			}
			return true
		})
	}
}

type stopAtFirst struct{}

func (stopAtFirst) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// DOC-03: commands leave nothing behind, in the supervisor as in the session.
func (s *supervised) testNoLeak(t *testing.T) {
	run := func(tty bool) {
		req := shell("cat; exit 7")
		req.TTY = tty
		got, err := s.run(req, strings.NewReader("abc\n"))
		must(t, err)
		if got.ExitCode != 7 || !strings.Contains(got.out, "abc") {
			t.Fatalf("got %+v", got)
		}
	}
	run(false)
	run(true)
	s.client.Close()
	before := map[int]int{}
	pids := []int{s.cmd.Process.Pid, s.supervisor.Process.Pid}
	for _, pid := range pids {
		before[pid] = descriptorsOf(t, pid)
	}
	for i := range 100 {
		run(i%10 == 0)
	}
	s.client.Close() // its idle connections
	for _, pid := range pids {
		await(t, "as few descriptors as before are open", func() bool { return descriptorsOf(t, pid) <= before[pid] })
	}
}
