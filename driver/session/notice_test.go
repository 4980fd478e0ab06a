// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
)

// notices are the processes that show a message on the desktop, and what they were given
// to say.
func (s *supervised) notices() map[int]string {
	s.t.Helper()
	below, err := process.Descendants(s.identity.PID)
	must(s.t, err)
	found := map[int]string{}
	for _, pid := range below {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if !bytes.HasSuffix(line, []byte(OpenerName+"\x00"+noticeArgument+"\x00")) || bytes.Contains(line, []byte(noticeTerminal)) {
			continue
		}
		env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		for variable := range strings.SplitSeq(string(env), "\x00") {
			if text, ok := strings.CutPrefix(variable, noticeVariable+"="); ok {
				found[pid] = text
			}
		}
	}
	return found
}

// W1, W3: who clicks the browser's icon and gets none sees why, in one window however often
// it is clicked, and another one when that was closed.
func TestW3RefusalIsSeenOnTheDesktop(t *testing.T) {
	if _, err := exec.LookPath(noticeTerminal); err != nil {
		t.Skip("needs xfce4-terminal")
	}
	s := newBrowsing(t, func(p *dialhome.Plan) { p.Browser.Executable = "/no/such/browser" })
	click := func() {
		t.Helper()
		result, err := s.run(control.ExecRequest{GUI: true, Argv: []string{filepath.Join(s.plan.XDir, OpenerName)}}, strings.NewReader(""))
		must(t, err)
		if result.ExitCode != 1 || !strings.Contains(result.err, "/no/such/browser") {
			t.Fatalf("the opener says %+v", result)
		}
	}
	shown := func() map[int]string {
		t.Helper()
		var found map[int]string
		await(t, "the window", func() bool { found = s.notices(); return len(found) > 0 })
		return found
	}
	click()
	first := shown()
	if _, err := exec.LookPath("xwininfo"); err == nil {
		await(t, "its window", func() bool {
			result, err := s.run(control.ExecRequest{GUI: true, Argv: []string{"xwininfo", "-name", noticeTitle}}, strings.NewReader(""))
			must(t, err)
			return strings.Contains(result.out, "IsViewable")
		})
	}
	click()
	for pid, text := range shown() {
		if _, ok := first[pid]; !ok || len(first) != 1 {
			t.Errorf("there are %v and pid %d", first, pid)
		}
		if !strings.Contains(text, "/no/such/browser") {
			t.Errorf("it says %q", text)
		}
		must(t, unix.Kill(pid, unix.SIGTERM))
	}
	await(t, "the end of the window", func() bool {
		for pid := range processesOf(s.uid) {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if bytes.Contains(line, []byte(noticeArgument)) {
				return false
			}
		}
		return true
	})
	click()
	for pid := range shown() {
		if _, ok := first[pid]; ok {
			t.Errorf("pid %d is still there", pid)
		}
	}
}

// The program in the window ends when somebody has read it.
func TestNotice(t *testing.T) {
	var out strings.Builder
	if code := noticeMain("The browser was not opened: it is away.", strings.NewReader("\nmore"), &out); code != 0 || !strings.Contains(out.String(), "  The browser was not opened: it is away.\n") {
		t.Errorf("%d, %q", code, out.String())
	}
	if code := noticeMain("gone", strings.NewReader(""), &out); code != 0 {
		t.Errorf("a window that was closed: %d", code)
	}
}

// X32: words of a browser command no terminal, and stand whole on lines of the window.
func FuzzWrapped(f *testing.F) {
	f.Add("The browser was not opened: chromium exited with 1; last output: \"\x1b]0;evil\x07\"", 72)
	f.Add(strings.Repeat("word ", 100), 20)
	f.Add("\u202e\u2028\xff", 0)
	f.Fuzz(func(t *testing.T, text string, width int) {
		for line := range strings.Lines(wrapped(text, width)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q", line)
			}
			if words := strings.Fields(line); len(words) > 1 && len([]rune(strings.TrimPrefix(line, "  "))) > width {
				t.Errorf("%q has more than %d runes", line, width)
			}
		}
	})
}
