// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

func (s *suite) execChecks(r *running) {
	if len(s.Shell) == 0 {
		s.Log("C59, C61 to C69 skipped: the target has no Shell")
		return
	}
	for _, c := range []struct {
		name string
		f    func(*suite, *running)
	}{
		{"C59_exec", (*suite).checkExec},
		{"C61_pipes", (*suite).checkPipes},
		{"C62_terminal", (*suite).checkTerminal},
		{"C63_terminal_size", (*suite).checkTerminalSize},
		{"C64_stdin", (*suite).checkStdin},
		{"C65_background_process", (*suite).checkBackground},
		{"C66_live_output", (*suite).checkLiveOutput},
		{"C67_framing", (*suite).checkFraming},
		{"C67_binary", (*suite).checkBinary},
		{"C68_disconnect", (*suite).checkDisconnect},
		{"C69_C73_context", (*suite).checkExecContext},
	} {
		s.check(c.name, func(s *suite) { c.f(s, r) })
	}
}

func (s *suite) script(text string) []string {
	return append(append([]string{}, s.Shell...), text)
}

// streamed is what a command that ran to its end gave.
type streamed struct {
	stdout, stderr string
	code           int32
}

func (s *suite) stream(r *running, tty bool, script string, stdin io.Reader, sizes ...nomadplugin.TerminalSize) streamed {
	s.Helper()
	resize := make(chan nomadplugin.TerminalSize, len(sizes))
	for _, size := range sizes {
		resize <- size
	}
	var stdout, stderr bytes.Buffer
	result, err := r.on.ExecTaskStreaming(s.soon(), r.id, nomadplugin.ExecRequest{
		Command: s.script(script), TTY: tty, Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Resize: resize,
	})
	s.must(err)
	return streamed{stdout.String(), stderr.String(), result.GetExitCode()}
}

func (s *suite) checkExec(r *running) {
	ctx := s.soon()
	result, err := r.on.ExecTask(ctx, r.id, s.script("echo out; echo err >&2; exit 3"), patience)
	s.must(err)
	output := string(result.GetStdout()) + string(result.GetStderr())
	if result.GetResult().GetExitCode() != 3 || !strings.Contains(output, "out\n") || !strings.Contains(output, "err\n") {
		s.Errorf("got %v", result)
	}
	s.within(patience/2, "a command with a timeout", func() {
		result, err := r.on.ExecTask(ctx, r.id, s.script("sleep 300"), 300*time.Millisecond)
		if err == nil && result.GetResult().GetExitCode() == 0 {
			s.Error("a command that was killed for its time has code 0")
		}
	})
	if _, err := r.on.ExecTask(ctx, r.id, nil, patience); err == nil {
		s.Error("an empty command is accepted")
	}
	if _, err := r.on.ExecTask(ctx, r.id, []string{"/no/such/program"}, patience); err == nil {
		// A shell's 127 is as good.
		result, _ := r.on.ExecTask(ctx, r.id, []string{"/no/such/program"}, patience)
		if result.GetResult().GetExitCode() == 0 {
			s.Error("a missing program has code 0")
		}
	}
	result, err = r.on.ExecTask(ctx, r.id, s.script("head -c 8000000 /dev/zero"), patience)
	s.must(err)
	if n := len(result.GetStdout()); n > 1<<20 {
		s.Errorf("%d bytes of output: want at most 1 MiB", n)
	}
}

func (s *suite) checkPipes(r *running) {
	got := s.stream(r, false, "echo out; echo err >&2; exit 43", nil)
	if want := (streamed{"out\n", "err\n", 43}); got != want {
		s.Errorf("got %+v: want %+v", got, want)
	}
	if got := s.stream(r, false, "kill -9 $$", nil); got.code != 137 {
		s.Errorf("killed by a signal: code %d: want 137", got.code)
	}
}

func (s *suite) checkTerminal(r *running) {
	got := s.stream(r, true, "echo out; echo err >&2; exit 43", nil)
	if want := (streamed{"out\r\nerr\r\n", "", 43}); got != want {
		s.Errorf("got %+v: want %+v", got, want)
	}
}

func (s *suite) checkTerminalSize(r *running) {
	if got := s.stream(r, false, "stty size", nil); got.code == 0 || !strings.Contains(got.stderr, "Inappropriate ioctl") {
		s.Errorf("without a terminal: got %+v", got)
	}
	got := s.stream(r, true, "sleep 1; stty size", nil, nomadplugin.TerminalSize{Rows: 100, Columns: 100})
	if got.stdout != "100 100\r\n" {
		s.Errorf("got %+v: want 100 100", got)
	}
}

func (s *suite) checkStdin(r *running) {
	if got := s.stream(r, false, "head -n1", strings.NewReader("hello\nrest\n")); got.stdout != "hello\n" {
		s.Errorf("pipe: got %+v", got)
	}
	if got := s.stream(r, false, "cat", strings.NewReader("all of it")); got.stdout != "all of it" || got.code != 0 {
		s.Errorf("the end of the input must end cat: got %+v", got)
	}
	if got := s.stream(r, true, "head -n1", strings.NewReader("hello\n")); got.stdout != "hello\r\nhello\r\n" {
		s.Errorf("terminal: got %q: want the echo and the line", got.stdout)
	}
	// The command ends while its client still has input open and never sends any.
	never, hold := io.Pipe()
	defer hold.Close()
	s.within(patience/2, "a command that ignores its input", func() { s.stream(r, false, "exit 0", never) })
}

func (s *suite) checkBackground(r *running) {
	for _, tty := range []bool{true, false} {
		s.within(8*time.Second, "a command with a process left in the background", func() {
			got := s.stream(r, tty, "(trap '' HUP; sleep 30; echo late) & echo lead", nil)
			if strings.Contains(got.stdout, "late") || !strings.Contains(got.stdout, "lead") {
				s.Errorf("terminal %v: got %+v", tty, got)
			}
		})
	}
}

// stamps notes when each piece arrives.
type stamps struct {
	mu    sync.Mutex // guards times
	times []time.Time
}

func (w *stamps) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, time.Now())
	return len(p), nil
}

func (s *suite) checkLiveOutput(r *running) {
	out := &stamps{}
	_, err := r.on.ExecTaskStreaming(s.soon(), r.id, nomadplugin.ExecRequest{
		Command: s.script("for i in 1 2 3; do echo $i; sleep 0.4; done"), Stdout: out,
	})
	s.must(err)
	if len(out.times) != 3 || out.times[2].Sub(out.times[0]) < 600*time.Millisecond {
		s.Errorf("three lines 400 ms apart came in %d pieces at %v", len(out.times), out.times)
	}
}

type (
	execRequest  = driverpb.ExecTaskStreamingRequest
	execResponse = driverpb.ExecTaskStreamingResponse
)

// exchange sends messages as they are and collects all answers.
func (s *suite) exchange(r *running, messages ...*execRequest) (answers []*execResponse, err error) {
	s.Helper()
	ctx := s.soon()
	stream, release, err := r.on.OpenExec(ctx)
	s.must(err)
	defer release()
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			break
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return answers, r.on.Describe(ctx, err)
		}
		answers = append(answers, answer)
	}
}

func (s *suite) checkFraming(r *running) {
	setup := &execRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{TaskId: string(r.id), Command: s.script("cat; echo end")}}
	stdin := &execRequest{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte("in "), Close: true}}
	answers, err := s.exchange(r, setup, &execRequest{}, stdin, &execRequest{})
	if !errors.Is(err, io.EOF) {
		s.Errorf("the stream ended with %v: want a clean end", err)
	}
	var stdout string
	closed := map[string]int{}
	for n, answer := range answers {
		stdout += string(answer.GetStdout().GetData())
		if answer.GetStdout().GetClose() {
			closed["stdout"]++
		}
		if answer.GetStderr().GetClose() {
			closed["stderr"]++
		}
		if last := n == len(answers)-1; answer.GetExited() != last || last && answer.GetResult() == nil {
			s.Errorf("message %d of %d: %v", n+1, len(answers), answer)
		}
	}
	if stdout != "in end\n" || closed["stdout"] != 1 || closed["stderr"] != 1 {
		s.Errorf("stdout %q, closes %v", stdout, closed)
	}
	_, err = s.exchange(r, stdin)
	if err == nil || !strings.Contains(err.Error(), "first message should always be setup") {
		s.Errorf("without a setup: %v", err)
	}
	_, err = s.exchange(r, &execRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{TaskId: string(r.id)}})
	if err == nil || errors.Is(err, io.EOF) {
		s.Errorf("without a command: %v", err)
	}
	// Half closing is no disconnection: the command still runs to its end.
	answers, err = s.exchange(r, &execRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{
		TaskId: string(r.id), Command: s.script("sleep 0.5; echo done")}})
	if !errors.Is(err, io.EOF) || len(answers) == 0 || string(answers[0].GetStdout().GetData()) != "done\n" {
		s.Errorf("C68: after a half close: %v, %v", answers, err)
	}
}

func (s *suite) checkBinary(r *running) {
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	got := s.stream(r, false, "cat", bytes.NewReader(data))
	if got.stdout != string(data) || got.code != 0 {
		s.Errorf("%d bytes came back as %d, equal %v, code %d", len(data), len(got.stdout), got.stdout == string(data), got.code)
	}
}

func (s *suite) checkDisconnect(r *running) {
	mark := "4" + strconv.FormatInt(time.Now().UnixNano(), 10)[9:]
	asleep := func() bool {
		for _, process := range marked(r.mark) {
			if strings.Contains(process.Command, "sleep "+mark) && !strings.Contains(process.Command, "-c") {
				return true
			}
		}
		return false
	}
	for _, tty := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = r.on.ExecTaskStreaming(ctx, r.id, nomadplugin.ExecRequest{Command: s.script("sleep " + mark + "; true"), TTY: tty})
		}()
		s.eventually("the command runs", asleep)
		cancel()
		<-ended
		s.eventually("the command of a client that left is killed", func() bool { return !asleep() })
	}
}

func (s *suite) checkExecContext(r *running) {
	got := s.stream(r, false, `env; echo "uid=$(id -u)"; grep SigIgn /proc/self/status`, nil)
	lines := strings.Split(got.stdout, "\n")
	has := func(line string) bool {
		for _, l := range lines {
			if l == line {
				return true
			}
		}
		return false
	}
	for _, name := range []string{"CONFORMANCE_MARK", "NOMAD_ALLOC_ID", "NOMAD_TASK_NAME", "NOMAD_TASK_DIR", "NOMAD_CPU_CORES"} {
		if want := name + "=" + r.config.GetEnv()[name]; !has(want) {
			s.Errorf("the environment lacks %q", want)
		}
	}
	if strings.Contains(got.stdout, agentSecretValue) || strings.Contains(got.stdout, nomadplugin.Handshake.MagicCookieKey) {
		s.Error("C32: the environment has what belongs to the agent")
	}
	uids := map[string]bool{}
	for _, process := range marked(r.mark) {
		uids["uid="+strconv.Itoa(process.UID)] = true
	}
	var uid string
	for _, line := range lines {
		if strings.HasPrefix(line, "uid=") {
			uid = line
		}
		if mask, ok := strings.CutPrefix(line, "SigIgn:\t"); ok {
			ignored, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if const13 := uint64(1) << 12; err != nil || ignored&const13 != 0 {
				s.Errorf("C27: SIGPIPE is ignored in the task: mask %s", mask)
			}
		}
	}
	if !uids[uid] {
		s.Errorf("the command ran as %q, the task as %v", uid, uids)
	}
}
