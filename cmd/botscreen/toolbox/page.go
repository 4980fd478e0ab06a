// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// page is what the agent has read of a page: its refs are good under the lease they were
// read under.
type page struct {
	mu   sync.Mutex // guards all below
	read lease.Epoch
	tab  string
	refs map[string]node
}

// epoch is the lease that the page was read under; 0: it was not, or that is over.
func (p *page) epoch() lease.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

func (p *page) keep(epoch lease.Epoch, tab string, refs map[string]node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read, p.tab, p.refs = epoch, tab, refs
}

func (p *page) lost() { p.keep(0, "", nil) }

// find is where a ref leads.
func (p *page) find(ref string) (epoch lease.Epoch, tab string, n node, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.read == 0 {
		return 0, "", n, sentence("read the page first: call page_snapshot and decide on what it says; since your last one, if there was one, a person may have had the screen.")
	}
	n, ok := p.refs[ref]
	if !ok {
		return 0, "", n, sentence(fmt.Sprintf("there is no ref %q in your last page_snapshot.", ref))
	}
	return p.read, p.tab, n, nil
}

type snapshotArgs struct {
	Tab string `json:"tab,omitempty" jsonschema:"id of the tab, from browser_tabs; the current one where it is left out"`
}

func (b *Box) snapshot(ctx context.Context, _ *mcp.CallToolRequest, args snapshotArgs) (*mcp.CallToolResult, any, error) {
	var of document
	var o *outline
	err := b.inBrowser(ctx, 0, func(d *driver) error {
		chosen, err := d.choose(ctx, args.Tab)
		if err != nil {
			return err
		}
		session, err := d.into(ctx, chosen.ID)
		if err != nil {
			return err
		}
		if o, of, err = d.outline(ctx, session); err == nil {
			b.page.keep(d.epoch, chosen.ID, o.refs)
		}
		return err
	})
	if err != nil {
		b.page.lost()
		return nil, nil, b.explainBrowser("page_snapshot", err)
	}
	text := fmt.Sprintf("Page %s at %s", quote(of.Title), screen.Distrust(of.URL))
	if of.State != "complete" {
		text += ", which still loads"
	}
	text += ":\n" + o.text.String()
	if o.cut {
		text += "There is more on the page than this; use page_screenshot with full, or scroll and click on the screen.\n"
	}
	return says("%s", text), nil, nil
}

// document is what a tab shows; Began tells one from the next at the same address.
type document struct {
	Title, URL, State string
	Began             float64
}

func (d *driver) document(ctx context.Context, session string) (doc document, err error) {
	err = d.evaluate(ctx, session, "({title: document.title, url: location.href, state: document.readyState, began: performance.timeOrigin})", &doc)
	return doc, err
}

// outline reads one document: where another one came meanwhile it reads that.
func (d *driver) outline(ctx context.Context, session string) (o *outline, after document, err error) {
	const tries = 5
	for range tries {
		before, err := d.document(ctx, session)
		if err != nil {
			return nil, before, err
		}
		var tree struct{ Nodes []axNode }
		if err := d.call(ctx, session, "Accessibility.getFullAXTree", nil, &tree); err != nil {
			return nil, before, err
		}
		if after, err = d.document(ctx, session); err != nil {
			return nil, after, err
		}
		if before.Began == after.Began {
			return newOutline(tree.Nodes), after, nil
		}
	}
	return nil, after, sentence("the page loads again and again. Take a screenshot and see what it does.")
}

type refArgs struct {
	Ref string `json:"ref" jsonschema:"what to click, as e12 in your last page_snapshot"`
}

func (b *Box) clickRef(ctx context.Context, _ *mcp.CallToolRequest, args refArgs) (*mcp.CallToolResult, any, error) {
	err := b.onRef(ctx, args.Ref, func(d *driver, session string, n node) error { return d.click(ctx, session, n) })
	if err != nil {
		return nil, nil, b.explainBrowser("page_click", err)
	}
	return says("done: page_click %s", args.Ref), nil, nil
}

type fillArgs struct {
	Ref    string `json:"ref" jsonschema:"the field, as e12 in your last page_snapshot"`
	Text   string `json:"text" jsonschema:"what it shall hold; empty empties it"`
	Submit bool   `json:"submit,omitempty" jsonschema:"true: press Return afterwards"`
}

func (b *Box) fillRef(ctx context.Context, _ *mcp.CallToolRequest, args fillArgs) (*mcp.CallToolResult, any, error) {
	err := b.onRef(ctx, args.Ref, func(d *driver, session string, n node) error {
		if err := d.fill(ctx, session, n, args.Text); err != nil || !args.Submit {
			return err
		}
		return d.press(ctx, session, "Enter", 13, "\r")
	})
	if err != nil {
		return nil, nil, b.explainBrowser("page_fill", err)
	}
	return says("done: page_fill %s", args.Ref), nil, nil
}

// onRef does something with what a ref leads to, on the page that it was read on.
func (b *Box) onRef(ctx context.Context, ref string, do func(d *driver, session string, n node) error) error {
	epoch, tab, n, err := b.page.find(ref)
	if err != nil {
		return err
	}
	return b.inBrowser(ctx, epoch, func(d *driver) error {
		session, err := d.into(ctx, tab)
		if err != nil {
			return err
		}
		// Pages behind others take no input.
		if err := d.call(ctx, session, "Page.bringToFront", nil, nil); err != nil {
			return err
		}
		return do(d, session, n)
	})
}

// click presses and releases the left button in the middle of a node, if that is what is
// there.
func (d *driver) click(ctx context.Context, session string, n node) error {
	x, y, err := d.middle(ctx, session, n)
	if err != nil {
		return err
	}
	var hit bool
	err = d.callOn(ctx, session, n, `function(x, y) {
		const there = this.getRootNode().elementFromPoint(x, y);
		return !!there && (this === there || this.contains(there) || there.contains(this) || there.control === this || [...(this.labels ?? [])].some((l) => l.contains(there)));
	}`, &hit, x, y)
	if err != nil {
		return err
	}
	if !hit {
		return sentence("something else lies over it. Take a page_snapshot or a screenshot and see what.")
	}
	for _, event := range []struct {
		kind    string
		buttons int
	}{{"mouseMoved", 0}, {"mousePressed", 1}, {"mouseReleased", 0}} {
		params := map[string]any{"type": event.kind, "x": x, "y": y, "buttons": event.buttons}
		if event.kind != "mouseMoved" {
			params["button"], params["clickCount"] = "left", 1
		}
		if err := d.call(ctx, session, "Input.dispatchMouseEvent", params, nil); err != nil {
			return err
		}
	}
	return nil
}

// middle scrolls to a node and gives its middle in pixels of the page's view.
func (d *driver) middle(ctx context.Context, session string, n node) (x, y float64, err error) {
	of := map[string]any{"backendNodeId": n.backend}
	if err := d.call(ctx, session, "DOM.scrollIntoViewIfNeeded", of, nil); err != nil {
		return 0, 0, sentence("it is not on the page any more, or cannot be seen. Take a page_snapshot and decide again.")
	}
	var shape struct{ Quads [][]float64 }
	if err := d.call(ctx, session, "DOM.getContentQuads", of, &shape); err != nil {
		return 0, 0, err
	}
	for _, q := range shape.Quads { // four corners, x and y of each
		if len(q) == 8 && math.Abs((q[4]-q[0])*(q[5]-q[1])) >= 1 {
			return (q[0] + q[2] + q[4] + q[6]) / 4, (q[1] + q[3] + q[5] + q[7]) / 4, nil
		}
	}
	return 0, 0, sentence("it cannot be seen on the page. Take a page_snapshot and decide again.")
}

// fill puts text into a field, as somebody would who selects what is there and types, or
// chooses in a list.
func (d *driver) fill(ctx context.Context, session string, n node, text string) error {
	var kind string
	err := d.callOn(ctx, session, n, `function(text) {
		if (this.disabled || this.readOnly) return "fixed";
		if (this instanceof HTMLSelectElement) {
			const option = [...this.options].find((o) => o.label.trim() === text || o.value === text);
			if (!option) return "no such choice";
			this.value = option.value;
			this.dispatchEvent(new Event("input", { bubbles: true }));
			this.dispatchEvent(new Event("change", { bubbles: true }));
			return "chosen";
		}
		this.focus();
		if (typeof this.select === "function") this.select();
		else if (this.isContentEditable) getSelection().selectAllChildren(this);
		else return "no field";
		return "selected";
	}`, &kind, text)
	switch {
	case err != nil:
		return err
	case kind == "chosen":
		return nil
	case kind == "no such choice":
		return sentence("it has no choice of that name. Take a page_snapshot to see which there are.")
	case kind != "selected":
		return sentence("it is no field that can be filled. Use page_click.")
	case text == "":
		return d.press(ctx, session, "Backspace", 8, "")
	}
	return d.call(ctx, session, "Input.insertText", map[string]string{"text": text}, nil)
}

// press presses and releases one key.
func (d *driver) press(ctx context.Context, session, key string, code int, text string) error {
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			params["text"] = text
		}
		if err := d.call(ctx, session, "Input.dispatchKeyEvent", params, nil); err != nil {
			return err
		}
	}
	return nil
}

// callOn calls a function on a node of the page.
func (d *driver) callOn(ctx context.Context, session string, n node, function string, into any, args ...any) error {
	var resolved struct{ Object struct{ ObjectID string } }
	if err := d.call(ctx, session, "DOM.resolveNode", map[string]any{"backendNodeId": n.backend}, &resolved); err != nil {
		return sentence("it is not on the page any more. Take a page_snapshot and decide again.")
	}
	given := make([]map[string]any, len(args))
	for i, arg := range args {
		given[i] = map[string]any{"value": arg}
	}
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	err := d.call(ctx, session, "Runtime.callFunctionOn", map[string]any{
		"objectId": resolved.Object.ObjectID, "functionDeclaration": function, "arguments": given, "returnByValue": true, "userGesture": true,
	}, &got)
	switch {
	case err != nil:
		return err
	case got.ExceptionDetails != nil:
		return sentence("the page refuses that. Take a screenshot and see what it shows.")
	}
	return json.Unmarshal(got.Result.Value, into)
}
