// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// model is an agent that uses its screen by `botscreen mcp`.
type model struct {
	*mcp.ClientSession
	t *testing.T
}

// newModel runs `botscreen mcp` with these arguments until the test ends.
func newModel(t *testing.T, a *agent, args ...string) *model {
	t.Helper()
	cmd := exec.Command(binary(t, "botscreen"), append([]string{"mcp"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "NOMAD_ADDR=" + a.addr, "NOMAD_TOKEN=" + a.token}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "acceptance", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("botscreen mcp: %v\n%s", err, &stderr)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil || stderr.Len() > 0 {
			t.Errorf("botscreen mcp ended: %v\n%s", err, &stderr)
		}
	})
	return &model{session, t}
}

// call calls a tool and gives what it says.
func (m *model) call(tool string, args map[string]any) (text string, picture []byte, failed bool) {
	m.t.Helper()
	result, err := m.CallTool(m.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		m.t.Fatalf("%s: %v", tool, err)
	}
	for _, c := range result.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			text += c.Text + "\n"
		case *mcp.ImageContent:
			picture = c.Data
		}
	}
	return text, picture, result.IsError
}

// does calls a tool that has to succeed.
func (m *model) does(tool string, args map[string]any) string {
	m.t.Helper()
	text, _, failed := m.call(tool, args)
	if failed {
		m.t.Fatalf("%s %v: %s", tool, args, text)
	}
	return text
}

// refused calls a tool that has to fail with all of these words.
func (m *model) refused(tool string, args map[string]any, words ...string) {
	m.t.Helper()
	text, picture, failed := m.call(tool, args)
	if !failed || picture != nil {
		m.t.Errorf("%s is not refused: %s", tool, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			m.t.Errorf("%s says %q, nothing of %q", tool, text, w)
		}
	}
}

// focus is a place in the terminal, which has a colour of its own.
var focus = map[string]any{"x": 200, "y": 300}

// typing is a screen with a terminal that keeps what is typed into it.
func typing(t *testing.T, a *agent, profile string, config ...string) {
	t.Helper()
	config = append(config, `command = "xfce4-terminal"`,
		`args = ["--disable-server", "--geometry=60x20+20+60", "--color-bg=#ff00ff", "-x", "sh", "-c", "echo up > up; exec cat > typed"]`)
	a.must(t, "run", a.job(t, profile, config...))
	a.eventually("a terminal", func() bool {
		red, green, blue, _ := picture(t, a, profile).At(focus["x"].(int), focus["y"].(int)).RGBA()
		return red == 0xffff && green == 0 && blue == 0xffff && a.botscreen(t, "exec", "-T", profile, "cat", "up").stdout == "up\n"
	})
}

// awaitTyped waits until the terminal has got this text, and nothing else.
func (a *agent) awaitTyped(t *testing.T, profile, text string) {
	t.Helper()
	var last result
	arrived := false
	defer func() {
		if !arrived {
			t.Logf("the terminal got %s", last)
		}
	}()
	a.eventually("what was typed", func() bool {
		last = a.botscreen(t, "exec", "-T", "--force", profile, "cat", "typed")
		arrived = last.stdout == text
		return arrived
	})
}

// usedByMCP is an agent's turn on its screen: it looks, clicks and types, a person takes
// the screen and hands it back, the supervisor is replaced (rules L6, L13, LSE-01).
func usedByMCP(t *testing.T, a *agent) {
	typing(t, a, "mcp")
	defer a.botscreen(t, "stop", "--force", "mcp")
	m := newModel(t, a, "mcp")
	m.refused("click", focus, "screenshot")
	text, picture, failed := m.call("screenshot", nil)
	if shown, err := png.DecodeConfig(bytes.NewReader(picture)); failed || err != nil || shown.Width != 800 || shown.Height != 600 {
		t.Fatalf("screenshot: %s, %v", text, err)
	}
	m.does("click", focus)
	m.does("type", map[string]any{"text": "ä€漢 first\n"})
	a.awaitTyped(t, "mcp", "ä€漢 first\n")
	if text := m.does("windows", nil); !strings.Contains(text, "erminal") || !strings.Contains(text, `"focused":true`) {
		t.Errorf("windows: %s", text)
	}
	if text := m.does("cursor", nil); !strings.Contains(text, "x 200, y 300") {
		t.Errorf("cursor: %s", text)
	}
	// Through the clipboard into a program and back out of it.
	m.does("clipboard", map[string]any{"operation": "set", "text": "ü€字 pasted"})
	m.does("key", map[string]any{"keys": "ctrl+shift+v"})
	m.does("wait", map[string]any{"seconds": 2}) // the terminal asks for the text; Return must not come before it
	m.does("key", map[string]any{"keys": "Return"})
	a.awaitTyped(t, "mcp", "ä€漢 first\nü€字 pasted\n")

	m.does("request_human", map[string]any{"reason": "a code from your phone"})
	if out := a.must(t, "status", "mcp"); !strings.Contains(out, "a code from your phone") {
		t.Errorf("status: %s", out)
	}
	if out := a.must(t, "handoff"); !strings.Contains(out, "THE AGENT SAYS") || !strings.Contains(out, "a code from your phone") {
		t.Errorf("handoff: %s", out)
	}
	m.does("screenshot", nil)
	if l := leaseBy(t, a, "take", "mcp"); !l.You {
		t.Fatalf("the lease is %+v", l)
	}
	m.refused("click", focus, "human_has_control", "since", "wait_for_human")
	m.refused("type", map[string]any{"text": "not this\n"}, "screenshot")
	m.refused("screenshot", nil, "human_has_control")
	if text := m.does("wait_for_human", map[string]any{"timeout_seconds": 0.1}); !strings.Contains(text, "has not handed it back") {
		t.Errorf("wait_for_human: %s", text)
	}
	handed := make(chan string)
	go func() {
		result, err := m.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait_for_human", Arguments: map[string]any{"timeout_seconds": 60}})
		if err != nil {
			handed <- err.Error()
			return
		}
		handed <- result.Content[0].(*mcp.TextContent).Text
	}()
	m.refused("clipboard", map[string]any{"operation": "get"}, "human_has_control")
	a.must(t, "release", "mcp")
	if text := <-handed; !strings.Contains(text, "handed back to you after") || !strings.Contains(strings.ToLower(text), "terminal") {
		t.Errorf("wait_for_human: %s", text)
	}
	m.refused("type", map[string]any{"text": "nor this\n"}, "screenshot")
	if text := m.does("clipboard", map[string]any{"operation": "get"}); !strings.Contains(text, "no text") {
		t.Errorf("after the hand-back the clipboard holds %q", text)
	}

	old := supervisors(a)
	if len(old) != 1 {
		t.Fatalf("supervisors %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("a picture by the next supervisor", func() bool { _, _, failed := m.call("screenshot", nil); return !failed })
	m.does("click", focus)
	m.does("type", map[string]any{"text": "second"})
	m.does("key", map[string]any{"keys": "Return"})
	a.awaitTyped(t, "mcp", "ä€漢 first\nü€字 pasted\nsecond\n")

	// The agent's socket is another door to the same screen: root may use it too.
	socket := agentSocket(t, a, "mcp")
	sibling := newModel(t, a, "--socket", socket)
	sibling.does("screenshot", nil)
	sibling.does("click", focus)
	sibling.does("type", map[string]any{"text": "third\n"})
	a.awaitTyped(t, "mcp", "ä€漢 first\nü€字 pasted\nsecond\nthird\n")
	a.must(t, "stop", "mcp")
	gone(t, a)
	m.refused("screenshot", nil, "does not run")
	if _, err := os.Lstat(filepath.Dir(socket)); err == nil {
		t.Errorf("%s is left", filepath.Dir(socket))
	}
}

// agentSocket is the path of a screen's agent's socket on the node (wire.md, section 5).
func agentSocket(t *testing.T, a *agent, task string) string {
	t.Helper()
	alloc := a.onlyAlloc(t, task)
	var found string
	err := filepath.WalkDir(filepath.Join(a.dir, "data"), func(path string, _ fs.DirEntry, _ error) error {
		if strings.HasSuffix(path, filepath.Join(alloc, "alloc", "botscreen", task+".sock")) {
			found = path
		}
		return nil
	})
	if err != nil || found == "" {
		t.Fatalf("no agent's socket of %s: %v", alloc, err)
	}
	return found
}
