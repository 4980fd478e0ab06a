// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"encoding/json"
	"time"
)

// Front is what people see of the browser.
type Front struct {
	Target string // the id of the page in front; empty: there is none
	URL    string
	// Filled says that a password field on a page that can be seen holds something.
	Filled bool
}

// pageLimit bounds the question to one page: one that is busy is passed over.
const pageLimit = 500 * time.Millisecond

// Front looks at the pages that can be seen. It changes nothing of them, and believes no
// script of theirs: it asks from a world of its own in each frame.
func (m *Mux) Front(ctx context.Context) (Front, error) {
	targets, err := m.Targets(ctx)
	if err != nil {
		return Front{}, err
	}
	var f Front
	focused := false
	for _, t := range targets {
		if !t.IsPage() && t.Type != "iframe" { // a page of another site within one
			continue
		}
		seen, err := m.look(ctx, t)
		if err != nil || !seen.Visible {
			continue // it is on its way out, or hangs
		}
		f.Filled = f.Filled || seen.Filled
		if t.IsPage() && (f.Target == "" || seen.Focused && !focused) {
			f.Target, f.URL, focused = t.ID, t.URL, seen.Focused
		}
	}
	return f, ctx.Err()
}

// glance is what one document shows.
type glance struct{ Visible, Focused, Filled bool }

// glanceAt runs in the world of Front.
const glanceAt = `({
	visible: document.visibilityState === "visible", focused: document.hasFocus(),
	filled: [...document.querySelectorAll("input[type=password]")].some((f) => f.value !== "" && f.getClientRects().length > 0),
})`

// look asks the documents of a target.
func (m *Mux) look(ctx context.Context, t Target) (seen glance, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	session, detach, err := m.Attach(ctx, t.ID)
	if err != nil {
		return seen, err
	}
	defer detach()
	var tree struct{ FrameTree frameTree }
	if err := m.Call(ctx, session, "Page.getFrameTree", nil, &tree); err != nil {
		return seen, err
	}
	for i, frame := range tree.FrameTree.all(nil) {
		in, err := m.glance(ctx, session, frame)
		switch {
		case err != nil && i == 0:
			return seen, err
		case i == 0:
			seen = in
		default:
			seen.Filled = seen.Filled || in.Filled
		}
	}
	return seen, nil
}

// frameTree is the frames of one page that live in its process.
type frameTree struct {
	Frame       struct{ ID string }
	ChildFrames []frameTree
}

func (f frameTree) all(list []string) []string {
	list = append(list, f.Frame.ID)
	for _, child := range f.ChildFrames {
		list = child.all(list)
	}
	return list
}

func (m *Mux) glance(ctx context.Context, session, frame string) (g glance, err error) {
	var world struct{ ExecutionContextID int }
	if err := m.Call(ctx, session, "Page.createIsolatedWorld", map[string]string{"frameId": frame, "worldName": "botscreen"}, &world); err != nil {
		return g, err
	}
	var got struct {
		Result struct{ Value json.RawMessage }
	}
	err = m.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": glanceAt, "contextId": world.ExecutionContextID, "returnByValue": true}, &got)
	if err != nil {
		return g, err
	}
	return g, json.Unmarshal(got.Result.Value, &g)
}
