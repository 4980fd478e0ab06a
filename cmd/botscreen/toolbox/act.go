// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay/action"
)

func (b *Box) addActions(s *mcp.Server) {
	add(b, s, "move", "Move the pointer", "Move the mouse pointer without pressing anything, for example to see a tooltip.", func(a moveArgs) action.Action {
		return action.Move{Point: action.Point(a)}
	})
	add(b, s, "click", "Click", "Move the mouse pointer and click once, by default with the left button. Keys such as ctrl or shift can be held meanwhile.",
		func(a clickArgs) action.Action { return a.action(1) })
	add(b, s, "double_click", "Double click", "Move the mouse pointer and click twice quickly, for example to open an icon or to select a word.",
		func(a clickArgs) action.Action { return a.action(2) })
	add(b, s, "drag", "Drag", "Press a mouse button at the first point of path, move along the others and release it at the last: to drag, to select, to draw, to move a slider.",
		func(a dragArgs) action.Action { return a.action() })
	add(b, s, "scroll", "Scroll", "Turn the mouse wheel with the pointer at x, y: dy notches down (negative: up), dx notches to the right (negative: left). One notch is about three lines.",
		func(a scrollArgs) action.Action {
			return action.Scroll{Point: action.Point{X: a.X, Y: a.Y}, DX: a.DX, DY: a.DY, Modifiers: a.Modifiers}
		})
	add(b, s, "type", "Type text", "Type text where the keyboard focus is, as from a keyboard; click into the field first. Any Unicode text goes; a line feed is the Return key and a tab "+
		"the Tab key. For shortcuts use key. For long texts set the clipboard and press ctrl+v.",
		func(a typeArgs) action.Action { return action.Type{Text: a.Text} })
	add(b, s, "key", "Press keys", "Press a key or a chord: \"Return\", \"Escape\", \"ctrl+c\", \"ctrl+shift+t\", \"alt+F4\", \"Page_Down\", \"super\". Names are joined with +, modifiers first: "+
		"ctrl, shift, alt, super, meta, altgr. To type text use type.",
		func(a keyArgs) action.Action { return action.Key{Keys: a.Keys, Count: a.Times} })
}

// add makes a tool of one action.
func add[In any](b *Box, s *mcp.Server, name, title, description string, actionOf func(In) action.Action) {
	tool := &mcp.Tool{Name: name, Description: description + " Take a screenshot afterwards to see what it did.",
		Annotations: changing(title)}
	mcp.AddTool(s, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		return says("done: %s", name), nil, b.act(ctx, name, actionOf(in))
	})
}

// act does one action on what the agent has seen.
func (b *Box) act(ctx context.Context, name string, a action.Action) error {
	list := action.List{a}
	epoch := b.sight.epoch()
	if epoch == 0 {
		return errLookFirst
	}
	if _, err := b.client.Input(ctx, control.InputRequest{Epoch: epoch, Actions: list}); err != nil {
		return b.explain(name, err)
	}
	return nil
}

type moveArgs struct {
	X int `json:"x" jsonschema:"pixels from the left edge of the screen"`
	Y int `json:"y" jsonschema:"pixels from the upper edge of the screen"`
}

type clickArgs struct {
	X         int    `json:"x" jsonschema:"pixels from the left edge of the screen"`
	Y         int    `json:"y" jsonschema:"pixels from the upper edge of the screen"`
	Button    string `json:"button,omitempty" jsonschema:"left (where it is left out), middle or right"`
	Modifiers string `json:"modifiers,omitempty" jsonschema:"keys held meanwhile, such as ctrl or ctrl+shift"`
}

func (a clickArgs) action(count int) action.Action {
	return action.Click{Point: action.Point{X: a.X, Y: a.Y}, Button: action.Button(a.Button), Count: count, Modifiers: a.Modifiers}
}

type dragArgs struct {
	Path      []moveArgs `json:"path" jsonschema:"the points to go through, 2 to 100"`
	Button    string     `json:"button,omitempty" jsonschema:"left (where it is left out), middle or right"`
	Modifiers string     `json:"modifiers,omitempty" jsonschema:"keys held meanwhile, such as ctrl or ctrl+shift"`
}

func (a dragArgs) action() action.Action {
	path := make([]action.Point, len(a.Path))
	for i, p := range a.Path {
		path[i] = action.Point(p)
	}
	return action.Drag{Path: path, Button: action.Button(a.Button), Modifiers: a.Modifiers}
}

type scrollArgs struct {
	X         int    `json:"x" jsonschema:"pixels from the left edge of the screen"`
	Y         int    `json:"y" jsonschema:"pixels from the upper edge of the screen"`
	DX        int    `json:"dx,omitempty" jsonschema:"notches to the right; negative: to the left"`
	DY        int    `json:"dy,omitempty" jsonschema:"notches down; negative: up"`
	Modifiers string `json:"modifiers,omitempty" jsonschema:"keys held meanwhile, such as ctrl to zoom"`
}

type typeArgs struct {
	Text string `json:"text" jsonschema:"what to type, at most 64 KiB"`
}

type keyArgs struct {
	Keys  string `json:"keys" jsonschema:"a key or a chord, such as Return or ctrl+shift+t"`
	Times int    `json:"times,omitempty" jsonschema:"how often, at most 100; once where it is left out"`
}
