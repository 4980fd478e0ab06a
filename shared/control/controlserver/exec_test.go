// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

func TestExec(t *testing.T) {
	c := open(t, newEverything(), screen.RoleOperator)
	run := func(input io.Reader, argv ...string) (control.ExecResult, string, string, error) {
		stream, err := c.Exec(t.Context(), control.ExecRequest{Argv: argv})
		if err != nil {
			return control.ExecResult{}, "", "", err
		}
		defer stream.Close()
		if input != nil {
			go func() {
				io.Copy(stream.Stdin(), input)
				stream.Stdin().Close()
			}()
		}
		var stdout, stderr bytes.Buffer
		result, err := stream.Copy(&stdout, &stderr)
		return result, stdout.String(), stderr.String(), err
	}
	result, out, errs, err := run(nil, "sh", "-c", "echo out; echo err >&2; exit 7")
	if err != nil || result.ExitCode != 7 || out != "out\n" || errs != "err\n" {
		t.Errorf("%+v, %q, %q, %v", result, out, errs, err)
	}
	// Many frames in both directions, back to back.
	large := strings.Repeat("0123456789abcdef", 100_000)
	result, out, _, err = run(strings.NewReader(large), "cat")
	if err != nil || result.ExitCode != 0 || out != large {
		t.Errorf("cat: %+v, %d bytes, %v", result, len(out), err)
	}
	// A program that does not read its input still delivers its output.
	_, out, _, err = run(strings.NewReader(large), "sh", "-c", "exec <&-; echo deaf")
	if err != nil || out != "deaf\n" {
		t.Errorf("deaf: %q, %v", out, err)
	}
	if _, _, _, err := run(nil, "forbidden"); control.KindOf(err) != control.Refused {
		t.Errorf("refused: %v", err)
	}
	if _, _, _, err := run(nil, "/does/not/exist"); control.KindOf(err) != control.Internal {
		t.Errorf("missing program: %v", err)
	}
}

// startPump runs a program behind pump, without HTTP around it.
func startPump(t *testing.T, argv ...string) (*control.ExecStream, *program, <-chan error) {
	t.Helper()
	p, err := startProgram(argv)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- pump(far, p) }()
	stream := control.NewExecStream(near)
	t.Cleanup(func() { stream.Close() })
	return stream, p, ended
}

func TestExecResize(t *testing.T) {
	stream, p, _ := startPump(t, "cat")
	want := control.TerminalSize{Rows: 50, Cols: 132}
	if err := stream.Resize(want); err != nil {
		t.Fatal(err)
	}
	if got := <-p.size; got != want {
		t.Errorf("size = %v", got)
	}
}

// A caller that leaves has its program killed, and nothing of pump is left.
func TestExecCallerLeaves(t *testing.T) {
	stream, p, ended := startPump(t, "sleep", "1000")
	stream.Close()
	if err := <-ended; !errors.Is(err, errCallerGone) {
		t.Errorf("pump: %v", err)
	}
	if p.cmd.ProcessState == nil {
		t.Error("the program was not waited for")
	}
}

// So has one that sends what is no frame.
func TestExecGarbage(t *testing.T) {
	for _, garbage := range []string{"\x63\x00\x00\x00", "\x00\xff\xff\xff", "\x10\x00\x00\x01x"} {
		p, err := startProgram([]string{"sleep", "1000"})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go near.Write([]byte(garbage))
		var malformed *control.FrameError
		if err := pump(far, p); !errors.As(err, &malformed) {
			t.Errorf("%q: %v", garbage, err)
		}
		near.Close()
	}
}

// A program that leaves a child with its output ends all the same.
func TestExecBackgroundChild(t *testing.T) {
	stream, _, ended := startPump(t, "sh", "-c", "sleep 1000 & echo $!; exit 4")
	var out bytes.Buffer
	begin := time.Now()
	result, err := stream.Copy(&out, io.Discard)
	if err != nil || result.ExitCode != 4 {
		t.Errorf("%+v, %v", result, err)
	}
	if took := time.Since(begin); took > 10*drainGrace {
		t.Errorf("ended after %v", took)
	}
	child, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatalf("no pid in %q", out.String())
	}
	syscall.Kill(child, syscall.SIGKILL)
	if err := <-ended; err != nil {
		t.Errorf("pump: %v", err)
	}
}

// A caller that reads only after the program has ended still gets everything.
func TestExecSlowReader(t *testing.T) {
	stream, p, _ := startPump(t, "sh", "-c", "head -c 60000 /dev/zero")
	<-p.ended
	var out bytes.Buffer
	if _, err := stream.Copy(&out, io.Discard); err != nil || out.Len() != 60000 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// Shutdown ends byte streams, which net/http does not know.
func TestShutdownEndsStreams(t *testing.T) {
	s, path := openSocket(t, newEverything(), screen.RoleOperator)
	c := control.NewClient(control.Unix(path))
	defer c.Close()
	stream, err := c.Exec(t.Context(), control.ExecRequest{Argv: []string{"sh", "-c", "echo $$; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	copied := make(chan error, 1)
	go func() { _, err := stream.Copy(w, io.Discard); copied <- err; w.Close() }()
	if _, err := r.Read(make([]byte, 32)); err != nil { // it runs
		t.Fatal(err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-copied; !errors.Is(err, control.ErrExecCut) {
		t.Errorf("stream: %v", err)
	}
}
