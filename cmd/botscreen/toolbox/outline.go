// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/shared/screen"
)

// Bounds of what a model is told of one page: what it reads costs it.
const (
	maxOutline = 48 << 10 // bytes
	maxDepth   = 40       // of the indentation; deeper things stand there
	maxWords   = 2000     // bytes of one text
)

// axNode is a node of the browser's accessibility tree
// (https://chromedevtools.github.io/devtools-protocol/tot/Accessibility/#type-AXNode).
type axNode struct {
	NodeID           string
	Ignored          bool
	Role, Name       axValue
	Value            axValue
	Properties       []axProperty
	ChildIDs         []string
	BackendDOMNodeID int64
}

type axValue struct{ Value json.RawMessage }

type axProperty struct {
	Name  string
	Value axValue
}

// text is the value as words; of a number or a boolean its JSON.
func (v axValue) text() string {
	var s string
	if json.Unmarshal(v.Value, &s) == nil {
		return s
	}
	return string(v.Value)
}

// outline is a page in words, with what can be used in it by its ref.
type outline struct {
	text strings.Builder
	refs map[string]node
	cut  bool
	all  map[string]*axNode
	seen map[string]bool
}

// node is what a ref leads to.
type node struct {
	backend int64
	role    string
}

// usable are the roles that one can click or fill, whatever has the focus.
var usable = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "checkbox": true, "radio": true, "switch": true, "slider": true,
	"spinbutton": true, "menuitem": true, "menuitemcheckbox": true, "menuitemradio": true, "option": true, "tab": true, "treeitem": true, "listbox": true,
}

// skipped are roles that say nothing; what is in them counts.
var skipped = map[string]bool{"none": true, "generic": true, "presentation": true, "LabelText": true, "MenuListPopup": true, "LineBreak": true}

// shown are the properties that are told, where they are not false.
var shown = map[string]bool{
	"checked": true, "disabled": true, "expanded": true, "selected": true, "required": true, "focused": true, "pressed": true, "level": true, "readonly": true,
}

func newOutline(nodes []axNode) *outline {
	o := &outline{refs: map[string]node{}, all: map[string]*axNode{}, seen: map[string]bool{}}
	for i := range nodes {
		o.all[nodes[i].NodeID] = &nodes[i]
	}
	if len(nodes) > 0 {
		o.add(nodes[0].NodeID, 0, "")
	}
	return o
}

// add writes a node and what is in it; above is the name that stands above it already.
func (o *outline) add(id string, depth int, above string) {
	n := o.all[id]
	if n == nil || o.seen[id] || o.cut {
		return
	}
	o.seen[id] = true // a page cannot make us go round
	role, name := n.Role.text(), n.Name.text()
	switch {
	case role == "InlineTextBox":
		return
	case role == "StaticText":
		if text := strings.TrimSpace(name); text != "" && !strings.Contains(above, text) {
			o.line(depth, "text "+quote(text))
		}
		return
	case n.Ignored || role == "RootWebArea" || skipped[role] && !n.is("focusable"):
	default:
		o.line(depth, o.describe(n, role, name))
		depth++
		above = name + "\n" + n.Value.text()
	}
	for _, child := range n.ChildIDs {
		o.add(child, depth, above)
	}
}

// describe is a node's line.
func (o *outline) describe(n *axNode, role, name string) string {
	words := role
	if name != "" {
		words += " " + quote(name)
	}
	if n.BackendDOMNodeID != 0 && (usable[role] || n.is("focusable")) {
		ref := "e" + strconv.Itoa(len(o.refs)+1)
		o.refs[ref] = node{n.BackendDOMNodeID, role}
		words += " [" + ref + "]"
	}
	if value := n.Value.text(); value != "" && value != name {
		words += " value " + quote(value)
	}
	for _, p := range n.Properties {
		if value := p.Value.text(); shown[p.Name] && value != "false" {
			words += " " + p.Name
			if value != "true" {
				words += "=" + screen.Distrust(value).String()
			}
		}
	}
	return words
}

func (n *axNode) is(property string) bool {
	for _, p := range n.Properties {
		if p.Name == property {
			return p.Value.text() == "true"
		}
	}
	return false
}

func (o *outline) line(depth int, words string) {
	if o.text.Len()+len(words) > maxOutline {
		o.cut = true
		return
	}
	fmt.Fprintf(&o.text, "%s- %s\n", strings.Repeat("  ", min(depth, maxDepth)), words)
}

// quote is text of a page in quotes, without what could play tricks with its reader (X32).
func quote(text string) string {
	const piece = 100 // bytes; made harmless they stay below what Distrust keeps
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " ")
	more := ""
	if len(text) > maxWords {
		text, more = text[:maxWords], "…"
	}
	var clean strings.Builder
	for len(text) > 0 {
		end := min(piece, len(text))
		for end < len(text) && end > 1 && text[end]&0xc0 == 0x80 { // within a character
			end--
		}
		clean.WriteString(screen.Distrust(text[:end]).String())
		text = text[end:]
	}
	return strconv.Quote(clean.String() + more)
}
