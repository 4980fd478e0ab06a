// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// Front is what people see of the browser.
type Front struct {
	Target string // the id of the page in front; empty: there is none
	URL    string
	// Unsure says that a page did not answer in time and no other has the focus: that one
	// may be in front.
	Unsure bool
	// Filled says that a password field on a page that can be seen holds something.
	Filled bool
}

// Front looks at the pages that can be seen, at each for as long as limit: one that is busy
// is passed over. It changes nothing of them, and believes no script of theirs: it asks from
// a world of its own in each frame.
func (m *Mux) Front(ctx context.Context, limit time.Duration) (Front, error) {
	targets, err := m.Targets(ctx)
	if err != nil {
		return Front{}, err
	}
	targets = slices.DeleteFunc(targets, func(t Target) bool {
		return !t.IsPage() && t.Type != "iframe" // a page of another site within one
	})
	looks := make([]look, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { looks[i] = m.look(ctx, t, limit) })
	}
	all.Wait()
	return inFront(targets, looks), ctx.Err()
}

func inFront(targets []Target, looks []look) (f Front) {
	focused, silent := false, false
	for i, t := range targets {
		seen := looks[i]
		silent = silent || t.IsPage() && errors.Is(seen.err, context.DeadlineExceeded)
		if seen.err != nil || !seen.Visible {
			continue // it is on its way out, or hangs
		}
		f.Filled = f.Filled || seen.Filled
		if t.IsPage() && (f.Target == "" || seen.Focused && !focused) {
			f.Target, f.URL, focused = t.ID, t.URL, seen.Focused
		}
	}
	f.Unsure = silent && !focused
	return f
}

// Reload loads a page again and returns when another document has taken the place of the
// one that was there: until then a key would reach that one.
func (m *Mux) Reload(ctx context.Context, target string) error {
	session, detach, err := m.Attach(ctx, target)
	if err != nil {
		return err
	}
	defer detach()
	before, err := m.document(ctx, session)
	if err != nil {
		return err
	}
	if err := m.Call(ctx, session, "Page.reload", map[string]any{"ignoreCache": true}, nil); err != nil {
		return err
	}
	again := time.NewTicker(reloadLook)
	defer again.Stop()
	for {
		now, err := m.document(ctx, session)
		switch {
		case err == nil && now != before:
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded): // the page is closed
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	// reloadLook is how often a page that is being loaded again is looked at, and
	// documentLimit how long for: the browser holds questions back meanwhile, and may lose
	// one with the old document.
	reloadLook, documentLimit = 20 * time.Millisecond, 2 * time.Second
)

// document names the document that a page shows. Each load makes another.
func (m *Mux) document(ctx context.Context, session string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, documentLimit)
	defer cancel()
	var tree struct{ FrameTree frameTree }
	err := m.Call(ctx, session, "Page.getFrameTree", nil, &tree)
	return tree.FrameTree.Frame.LoaderID, err
}

// glance is what one document shows.
type glance struct{ Visible, Focused, Filled bool }

// glanceAt runs in the world of Front.
const glanceAt = `({
	visible: document.visibilityState === "visible", focused: document.hasFocus(),
	filled: [...document.querySelectorAll("input[type=password]")].some((f) => f.value !== "" && f.getClientRects().length > 0),
})`

// look is what a target's documents show.
type look struct {
	glance
	err error
}

func (m *Mux) look(ctx context.Context, t Target, limit time.Duration) (seen look) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	session, detach, err := m.Attach(ctx, t.ID)
	if err != nil {
		return look{err: err}
	}
	defer detach()
	var tree struct{ FrameTree frameTree }
	if err := m.Call(ctx, session, "Page.getFrameTree", nil, &tree); err != nil {
		return look{err: err}
	}
	for i, frame := range tree.FrameTree.all(nil) {
		in, err := m.glance(ctx, session, frame)
		switch {
		case err != nil && i == 0:
			return look{err: err}
		case i == 0:
			seen.glance = in
		default:
			seen.Filled = seen.Filled || in.Filled
		}
	}
	return seen
}

// frameTree is the frames of one page that live in its process.
type frameTree struct {
	Frame       struct{ ID, LoaderID string }
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
