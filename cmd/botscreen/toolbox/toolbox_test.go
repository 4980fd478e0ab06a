// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"encoding/json"
	"image"
	"reflect"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/screen"
)

var here = map[string]any{"x": 10, "y": 20}

// Every tool says what it is for, and every argument what it means, to a model that sees
// them for the first time.
func TestToolsDescribeThemselves(t *testing.T) {
	m := newModel(t)
	listed, err := m.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, tool := range listed.Tools {
		names[tool.Name] = true
		if len(tool.Description) < 40 || tool.Annotations == nil || tool.Annotations.Title == "" {
			t.Errorf("%s: %q", tool.Name, tool.Description)
		}
		text, _ := json.Marshal(tool.InputSchema)
		var schema struct {
			Type       string
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal(text, &schema); err != nil || schema.Type != "object" {
			t.Errorf("%s: %s, %v", tool.Name, text, err)
		}
		for name, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s: %s is not described", tool.Name, name)
			}
		}
	}
	for _, name := range []string{"screenshot", "click", "double_click", "drag", "scroll", "move", "type", "key", "wait",
		"cursor", "windows", "clipboard", "browser_open", "browser_tabs", "page_snapshot", "page_click", "page_fill", "page_screenshot", "request_human", "wait_for_human", "lease"} {
		if !names[name] {
			t.Errorf("there is no tool %s", name)
		}
	}
}

// What a tool says is done becomes the action it is, under the epoch of the last look
// (LSE-11).
func TestLSE11Actions(t *testing.T) {
	m := newModel(t)
	m.does("screenshot", nil)
	for _, tc := range []struct {
		tool string
		args map[string]any
		want action.Action
	}{
		{"move", here, action.Move{Point: action.Point{X: 10, Y: 20}}},
		{"click", map[string]any{"x": 1, "y": 2, "button": "right", "modifiers": "ctrl"},
			action.Click{Point: action.Point{X: 1, Y: 2}, Button: action.Right, Count: 1, Modifiers: "ctrl"}},
		{"double_click", here, action.Click{Point: action.Point{X: 10, Y: 20}, Count: 2}},
		{"drag", map[string]any{"path": []any{here, map[string]any{"x": 3, "y": 4}}}, action.Drag{Path: []action.Point{{X: 10, Y: 20}, {X: 3, Y: 4}}}},
		{"scroll", map[string]any{"x": 10, "y": 20, "dy": -3}, action.Scroll{Point: action.Point{X: 10, Y: 20}, DY: -3}},
		{"type", map[string]any{"text": "ä€漢🙂\n"}, action.Type{Text: "ä€漢🙂\n"}},
		{"key", map[string]any{"keys": "ctrl+shift+t", "times": 2}, action.Key{Keys: "ctrl+shift+t", Count: 2}},
	} {
		m.does(tc.tool, tc.args, "done")
		got := m.acted()
		if len(got) != 1 || got[0].Epoch != 4 || len(got[0].Actions) != 1 || !reflect.DeepEqual(got[0].Actions[0], tc.want) {
			t.Errorf("%s sent %+v", tc.tool, got)
		}
	}
}

// L6: nothing is done before the first look, and after a change of hands nothing before
// the next; the refusal says who holds, since when, and what to do.
func TestL6LookAgain(t *testing.T) {
	m := newModel(t)
	m.refused("click", here, "Call screenshot")
	if got := m.acted(); len(got) > 0 {
		t.Errorf("it sent %+v", got)
	}
	m.does("screenshot", nil)
	m.does("click", here)
	m.acted()

	m.desk.change(lease.Human)
	m.refused("click", here, "human_has_control", "since 2026-03-01 12:00:00 UTC", "ago", "wait_for_human")
	if got := m.acted(); len(got) != 1 || got[0].Epoch != 4 {
		t.Errorf("it sent %+v", got)
	}
	m.refused("screenshot", nil, "human_has_control", "wait_for_human")
	m.desk.change(lease.Agent)
	for _, tool := range []string{"click", "move", "double_click"} {
		m.refused(tool, here, "Call screenshot")
	}
	m.does("lease", nil, "You, the agent", "Take a screenshot")
	m.refused("type", map[string]any{"text": "x"}, "Call screenshot")
	if got := m.acted(); len(got) > 0 {
		t.Errorf("before it looked again it sent %+v", got)
	}
	m.does("screenshot", nil)
	m.does("click", here)
	if got := m.acted(); len(got) != 1 || got[0].Epoch != 6 {
		t.Errorf("it sent %+v", got)
	}
}

// LSE-01: a whole take and return between a look and an action is noticed.
func TestLSE01TakeAndReturn(t *testing.T) {
	m := newModel(t)
	m.does("screenshot", nil)
	m.desk.change(lease.Human)
	m.desk.change(lease.Agent)
	m.refused("key", map[string]any{"keys": "Return"}, "lease_changed", "Call screenshot")
	m.refused("key", map[string]any{"keys": "Return"}, "Call screenshot")
	if got := m.acted(); len(got) != 1 {
		t.Errorf("it sent %+v", got)
	}
}

// L14: a picture that was overtaken by news of a later epoch is no look.
func TestL14LateLook(t *testing.T) {
	var s sight
	s.looked(frame{}, control.Screenshot{Epoch: 4, Hash: "h"})
	s.lost(6)
	s.looked(frame{}, control.Screenshot{Epoch: 4, Hash: "h"})
	if e := s.epoch(); e != 0 || s.hash(frame{}) != "" {
		t.Errorf("it acts on epoch %d", e)
	}
	s.looked(frame{}, control.Screenshot{Epoch: 6, Hash: "h"})
	s.lost(5) // late news
	if s.epoch() != 0 {
		t.Error("it goes on after doubts")
	}
	s.looked(frame{}, control.Screenshot{Epoch: 6, Hash: "h"})
	if e := s.epoch(); e != 6 || s.hash(frame{}) != "h" {
		t.Errorf("it acts on epoch %d", e)
	}
}

// CLI-03: a picture is a picture, and text is for its numbers; one that is not new is
// not sent again.
func TestCLI03Screenshot(t *testing.T) {
	m := newModel(t)
	a := m.does("screenshot", nil, "1440x900")
	if len(a.images) != 1 || a.images[0].MIMEType != "image/png" || string(a.images[0].Data) != "pixels" || len(a.text) > 200 {
		t.Errorf("%+v", a)
	}
	if a := m.does("screenshot", map[string]any{"unless_unchanged": true}, "unchanged"); len(a.images) > 0 {
		t.Errorf("%+v", a)
	}
	region := map[string]any{"x": 10, "y": 20, "width": 300, "height": 200}
	a = m.does("screenshot", map[string]any{"region": region, "scale": 0.5, "format": "jpeg", "unless_unchanged": true},
		"region from x 10, y 20, 300x200", "divide its pixels by 0.5")
	if len(a.images) != 1 || a.images[0].MIMEType != "image/jpeg" {
		t.Errorf("another region: %+v", a)
	}
	if last := m.desk.shots[len(m.desk.shots)-1]; last.Rect != image.Rect(10, 20, 310, 220) || last.Scale != 0.5 || last.Unless != "" {
		t.Errorf("it asked for %+v", last)
	}
	before := len(m.desk.shots)
	for _, args := range []map[string]any{
		{"scale": 2}, {"format": "bmp"}, {"region": map[string]any{"x": -1, "y": 0, "width": 1, "height": 1}},
		{"region": map[string]any{"x": 1, "y": 0, "width": 0, "height": 1}}, {"speed": 1},
	} {
		if a := m.call("screenshot", args); !a.failed {
			t.Errorf("%v: %+v", args, a)
		}
	}
	if len(m.desk.shots) != before {
		t.Errorf("it asked for %+v", m.desk.shots[before:])
	}
}

// wait takes the last look as what is to change, and gives the new picture.
func TestWait(t *testing.T) {
	m := newModel(t)
	m.refused("wait", map[string]any{"until": "change"}, "Call screenshot")
	for _, args := range []map[string]any{nil, {"seconds": 1, "until": "change"}, {"seconds": 61}, {"seconds": -1}} {
		m.refused("wait", args, "wait:")
	}
	m.does("screenshot", map[string]any{"scale": 0.5})
	m.does("wait", map[string]any{"until": "change", "timeout_seconds": 2}, "did not change")
	m.desk.mu.Lock()
	m.desk.hash = "h2"
	m.desk.mu.Unlock()
	if a := m.does("wait", map[string]any{"until": "change"}, "changed after"); len(a.images) != 1 {
		t.Errorf("%+v", a)
	}
	m.does("wait", map[string]any{"until": "settle"}, "settled after")
	m.refused("wait", map[string]any{"until": "settle", "timeout_seconds": 61}, "within")
	for i, want := range []control.ScreenshotRequest{
		{Scale: 0.5, Format: control.PNG},
		{Scale: 0.5, Format: control.PNG, Unless: "h1", Until: control.Change, Within: 2e9},
		{Scale: 0.5, Format: control.PNG, Unless: "h1", Until: control.Change, Within: 10e9},
		{Scale: 0.5, Format: control.PNG, Unless: "h2", Until: control.Settle, Within: 10e9},
	} {
		if m.desk.shots[i] != want {
			t.Errorf("it asked for %+v, want %+v", m.desk.shots[i], want)
		}
	}
	m.does("wait", map[string]any{"seconds": 0.01}, "over")
	m.desk.change(lease.Human)
	m.does("wait", map[string]any{"seconds": 0.01}, "over", "A person controls")
	m.refused("wait", map[string]any{"until": "change"}, "Call screenshot")
}

// L13: a person is asked for with a reason, and what became of it is told.
func TestL13AskAndWait(t *testing.T) {
	m := newModel(t)
	m.does("screenshot", nil)
	m.does("wait_for_human", nil, "No person has the screen")
	m.does("request_human", map[string]any{"reason": "a CAPTCHA", "deadline_minutes": 5}, "wait_for_human", "ends at")
	m.does("request_human", map[string]any{"reason": "again"}, "already", "a CAPTCHA")
	m.box.asked.set("") // as another life of this process
	for _, step := range []struct {
		state control.AskState
		hands lease.Holder
		says  string
	}{
		{control.AskOpen, "", "Nobody has come yet"},
		{control.AskTaken, lease.Human, "has not handed it back yet"},
		{control.AskHandedBack, lease.Agent, "handed back to you after 1m30s in a person's hands. Programs with windows before: mail; now: mail, xterm."},
	} {
		if step.hands != "" {
			m.desk.change(step.hands)
		}
		m.desk.mu.Lock()
		m.desk.outcome = control.AskOutcome{State: step.state, Held: 90e9,
			Note: &control.HandOff{Before: []string{"mail"}, After: []string{"mail", "xterm"}}}
		m.desk.mu.Unlock()
		m.does("wait_for_human", map[string]any{"timeout_seconds": 1}, step.says)
	}
	m.refused("click", here, "Call screenshot")

	m.does("request_human", map[string]any{"reason": "a code"})
	m.desk.mu.Lock()
	m.desk.outcome.State = control.AskExpired
	m.desk.mu.Unlock()
	m.does("wait_for_human", nil, "Nobody came", "You, the agent")
	m.refused("wait_for_human", map[string]any{"timeout_seconds": 301}, "300")
}

// Whoever took the screen unasked is waited for too.
func TestWaitForHandBack(t *testing.T) {
	m := newModel(t)
	m.does("screenshot", nil)
	m.desk.change(lease.Human)
	m.desk.mu.Lock()
	m.desk.lease.Reason = screen.Distrust("maintenance\x1b[31m")
	m.desk.mu.Unlock()
	m.does("wait_for_human", map[string]any{"timeout_seconds": 0.05}, "Nothing has happened yet", "They say: \"maintenance")
	done := make(chan answer)
	go func() { done <- m.call("wait_for_human", nil) }()
	m.desk.change(lease.Agent)
	if a := <-done; a.failed || !strings.Contains(a.text, "Take a screenshot") {
		t.Errorf("%+v", a)
	}
	m.refused("click", here, "Call screenshot")
}

// A screen that cannot be reached: whether an action was done is not known, so it has to
// be looked at.
func TestUnreachable(t *testing.T) {
	m := newModel(t)
	m.does("screenshot", nil)
	m.desk.mu.Lock()
	m.desk.failure = &control.Error{Kind: control.Busy, Message: "The desktop is still starting.", Next: "Try again in a moment."}
	m.desk.mu.Unlock()
	m.refused("screenshot", nil, "busy", "still starting. Try again")
	m.does("click", here) // that took nothing away
	m.box.client.Close()
	m.box.client = control.NewClient(control.Unix("/nonexistent/socket"))
	m.refused("click", here, "cannot be reached", "not known", "Call screenshot")
	m.refused("click", here, "Not done: look at the screen first")
}

// What agents ask of the desktop is data, in whatever words, and is fenced as the screen is.
func TestDesk(t *testing.T) {
	m := newModel(t)
	m.refused("clipboard", map[string]any{"operation": "set", "text": "x"}, "Call screenshot")
	m.does("screenshot", nil)
	m.does("windows", nil, `"title":"Mail·[31m"`, `"focused":true`, `"width_px":640`)
	m.does("cursor", nil, "x 12, y 34", "The middle button is down")
	m.does("clipboard", map[string]any{"operation": "set", "text": "ä€漢"}, "done")
	m.does("clipboard", map[string]any{"operation": "get"}, "ä€漢")
	m.refused("clipboard", map[string]any{"operation": "wipe"}, "get or set")
	m.desk.change(lease.Human)
	for tool, args := range map[string]map[string]any{"windows": nil, "cursor": nil, "clipboard": {"operation": "get"}} {
		m.refused(tool, args, "human_has_control")
	}
	m.desk.change(lease.Agent)
	m.refused("clipboard", map[string]any{"operation": "set", "text": "x"}, "Call screenshot")
	m.does("screenshot", nil)
	m.desk.change(lease.Human)
	m.desk.change(lease.Agent)
	m.refused("windows", nil, "lease_changed")
	m.refused("click", here, "Call screenshot")
}
